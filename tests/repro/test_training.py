"""The loop, and what is measured."""

from __future__ import annotations

import itertools

import pytest
import torch
from directloss_repro.data import Part, Split
from directloss_repro.evaluation import accuracy, best_threshold, measure
from directloss_repro.models import Scorer
from directloss_repro.seeding import derive, seeded
from directloss_repro.training import Schedule, Trained, make_optimizer, train
from sklearn.metrics import average_precision_score
from torch import Tensor, nn


def data(n: int = 40) -> Part:
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(1))
    return Part(x, (x[:, 0] > 0).long())


def entropy(scores: Tensor, target: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(scores, target.float())


def run(schedule: Schedule, part: Part | None = None) -> tuple[Trained, Scorer]:
    part = part or data()
    model = seeded(lambda: Scorer(3, (5,)), "weights")
    split = Split(part, part)
    return train(model, entropy, part, schedule, lambda network: measure(network, split, ("train", "test"))), model


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_training_learns(optimizer: str) -> None:
    trained, _ = run(Schedule(100, 0.05, optimizer=optimizer, evaluate_every=20))
    assert trained.curve["iteration"] == [0, 20, 40, 60, 80, 100]
    assert trained.curve["train_ap"][0] < trained.last["train_ap"]
    assert trained.last["train_ap"] > 0.97
    assert trained.last["test_accuracy"] > 0.9
    assert trained.diverged_at is None


def test_end_only() -> None:
    trained, _ = run(Schedule(3, 0.05))
    assert trained.curve["iteration"] == [3]


def test_an_end_between_two_measurements_is_measured_once() -> None:
    trained, _ = run(Schedule(5, 0.05, evaluate_every=2))
    assert trained.curve["iteration"] == [0, 2, 4, 5]


def test_one_step_of_sgd_by_hand() -> None:
    part = data()
    model = seeded(lambda: Scorer(3, (), bias=False), "weights")
    weight = next(model.parameters())
    before = weight.detach().clone()
    chance = torch.sigmoid(part.x @ before[0])
    by_hand = before - 0.1 * (((chance - part.y) @ part.x / len(part))[None] + 0.01 * before)
    train(model, entropy, part, Schedule(1, 0.1, weight_decay=0.01, optimizer="sgd"), lambda network: {})
    torch.testing.assert_close(weight.detach(), by_hand)


def test_same_seed_same_result() -> None:
    (first, model), (again, twin) = run(Schedule(10, 0.01)), run(Schedule(10, 0.01))
    assert first.curve == again.curve
    for left, right in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(left, right)


def test_batches_visit_everything_once_per_epoch() -> None:
    seen: list[list[float]] = []

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        seen.append(target.tolist())
        return scores.sum() * 0

    part = Part(torch.zeros(10, 3), torch.arange(10))
    train(Scorer(3, ()), loss, part, Schedule(5, 0.1, batch_size=4, seed=3), lambda network: {})
    assert [len(batch) for batch in seen] == [4] * 5
    assert len({*seen[0], *seen[1]}) == 8
    assert seen[:2] != seen[2:4]


def test_divergence_is_noticed_and_judged_as_a_constant_scorer() -> None:
    part = data()
    broken = Part(part.x.clone(), part.y)
    broken.x[0, 0] = float("inf")
    trained, _ = run(Schedule(5, 0.1), broken)
    assert trained.diverged_at == 0
    share = float(part.y.double().mean())
    assert trained.last["train_ap"] == pytest.approx(share, abs=0.1)  # chance, whatever the rule for ties is


def test_seeded_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    seeded(lambda: torch.rand(3), "anything")
    assert torch.equal(torch.rand(1), expected)


def test_seeds_do_not_change_between_versions() -> None:
    assert derive("data", 3) == 1453944372416177506  # a change would silently redraw every data set


def test_unknown_optimizers_cannot_reach_the_loop() -> None:
    assert isinstance(make_optimizer(Scorer(3, ()), Schedule(1, 0.1, optimizer="adamw")), torch.optim.AdamW)


# ---------------------------------------------------------------------- evaluation


def right_answers(scores: list[float], target: list[int], threshold: float) -> int:
    return sum((score > threshold) == (label == 1) for score, label in zip(scores, target, strict=True))


def test_best_threshold_against_all_thresholds(generator: torch.Generator) -> None:
    for _ in range(200):
        scores = torch.randint(0, 6, (7,), generator=generator).float()
        target = torch.randint(0, 2, (7,), generator=generator)
        threshold = best_threshold(scores, target)
        tried = [float("-inf"), *(k + 0.5 for k in range(-1, 7))]
        best = max(right_answers(scores.tolist(), target.tolist(), t) for t in tried)
        assert right_answers(scores.tolist(), target.tolist(), threshold) == best
        assert accuracy(scores, target, threshold) == pytest.approx(best / 7)


def test_threshold_comes_from_the_training_data() -> None:
    model = Scorer(1, (), bias=False)
    nn.init.ones_(next(model.parameters()))
    train_part = Part(torch.tensor([[0.0], [1.0], [2.0], [3.0]]), torch.tensor([0, 0, 1, 1]))
    test_part = Part(torch.tensor([[1.0], [1.6], [1.2]]), torch.tensor([0, 1, 1]))
    numbers = measure(model, Split(train_part, test_part), ("train", "test"))
    assert numbers["test_accuracy"] == pytest.approx(2 / 3)  # threshold 1.5
    assert numbers["train_ap"] == 1.0


def test_ap_is_that_of_everybody(generator: torch.Generator) -> None:
    part = Part(torch.randn(100, 2, generator=generator), torch.randint(0, 2, (100,), generator=generator))
    model = Scorer(2, ())  # linear: no ties, for which scikit-learn has another rule
    numbers = measure(model, Split(part, part, part), ("train", "val"))
    expected = average_precision_score(part.y, model(part.x).detach())
    assert numbers == {"train_ap": pytest.approx(expected), "val_ap": pytest.approx(expected)}


# ---------------------------------------------------------------------- epochs, schedules, augmentation


def test_learning_rate_drops() -> None:
    """With a gradient of one everywhere, plain SGD moves by the learning rate."""
    places: list[float] = []
    model = Scorer(1, (), bias=False)
    weight = next(model.parameters())

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        places.append(weight.item())
        return weight.sum() + 0 * scores.sum()

    part = Part(torch.ones(4, 1), torch.ones(4))
    schedule = Schedule(6, 1.0, optimizer="sgd", momentum=0.0, drops=(2, 4), factor=0.25)
    train(model, loss, part, schedule, lambda network: {})
    moves = [a - b for a, b in itertools.pairwise([*places, weight.item()])]
    assert moves == pytest.approx([1, 1, 0.25, 0.25, 0.0625, 0.0625], abs=1e-6)


def test_augmentation_changes_batches_but_not_the_data() -> None:
    part = Part(torch.zeros(10, 3), torch.arange(10))
    seen: list[Tensor] = []

    def shift(batch: Part, draw: torch.Generator) -> Part:
        return Part(batch.x + torch.rand(1, generator=draw), batch.y)

    class Watching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x.sum(1) * weight

    weight = nn.Parameter(torch.ones(()))
    model = Watching()
    model.weight = weight
    schedule = Schedule(4, 0.1, optimizer="sgd", batch_size=5)
    train(model, lambda s, y: s.sum() * 0, part, schedule, lambda network: {}, augment=shift)
    values = [float(x[0, 0]) for x in seen]
    assert len(set(values)) == 4
    assert bool((part.x == 0).all())
    seen.clear()
    train(model, lambda s, y: s.sum() * 0, part, schedule, lambda network: {}, augment=shift)
    assert [float(x[0, 0]) for x in seen] == values


def test_rmsprop_by_hand() -> None:
    model = Scorer(1, (), bias=False)
    weight = next(model.parameters())
    nn.init.ones_(weight)
    part = Part(torch.ones(1, 1), torch.ones(1))
    train(model, lambda s, y: s.sum(), part, Schedule(1, 0.1, optimizer="rmsprop"), lambda network: {})
    assert weight.item() == pytest.approx(1 - 0.1 / (0.01**0.5), abs=1e-5)  # mean square after one step: 0.01 * 1


def test_training_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    run(Schedule(3, 0.05))
    assert torch.equal(torch.rand(1), expected)
