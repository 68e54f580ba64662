"""Decisions judged by their confusion matrix: the fast search against the full grid and against all selections."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss import tasks
from directloss.kernels import flips as grid
from directloss.tasks import CountMetric, CountTask, Selection
from tests.oracle import draw_scores
from tests.oracle.confusion import METRICS, bumpy, bumpy_tensors, outputs

SIGNS = (+1, -1)
TIGHT = 1e-12  # float64, sums of some dozens of numbers of order one
NAMES = [name for name in METRICS if name != "jaccard"]


def objective(
    task: CountTask, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int, mask: Tensor | None = None
) -> Tensor:
    """How good the augmented output is, in float64."""
    output = task.augmented(scores, target, epsilon, sign, mask)
    return task.score(scores.double(), output) + sign * epsilon * task.loss(_double(output), target, mask)


def _double(output: Selection) -> Selection:
    return Selection(output.chosen.double(), output.items)


def get(name: str) -> CountTask:
    task = tasks.get(name)
    assert isinstance(task, CountTask)
    return task


def batch(generator: torch.Generator, tied: bool, padded: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Up to 4 problems of 2 to 60 items with any share of positives: scores, target, mask, epsilon."""
    problems, n = int(torch.randint(1, 5, (), generator=generator)), int(torch.randint(2, 61, (), generator=generator))
    scores = torch.randn(problems, n, generator=generator, dtype=torch.float64)
    if tied:
        scores = (2 * scores).round() / 4
    scores = scores + torch.randint(-1, 2, (problems, 1), generator=generator)
    target = (torch.rand(problems, n, generator=generator) < torch.rand(problems, 1, generator=generator) ** 2).long()
    mask = torch.rand(problems, n, generator=generator) < (0.7 if padded else 1.0)
    epsilon = 5 * torch.rand(problems, generator=generator, dtype=torch.float64) ** 3 + 1e-3
    return scores * mask, target * mask, mask, epsilon


# ---------------------------------------------------------------------------------------------- exactness


@pytest.mark.filterwarnings("ignore:.*but no gradient")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name in NAMES if get(name).line in ("predicted", "false positives")])
def test_compiled_flips_are_those_of_the_grid(name: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Losses and gradients of whole batches, of given and automatic epsilon, of either sign, both, and of draws."""
    ways = (
        {"sign": +1},
        {"sign": -1},
        {"sign": "both"},
        {"noise": 0.7},
        {"noise": 0.7, "epsilon": "auto", "samples": 3},
    )
    for tied, padded in product((False, True), repeat=2):
        scores, target, mask, epsilon = batch(generator, tied, padded)
        if tied:  # scores of 0, which cost nothing to flip, where there is nothing to gain
            target[0] = mask[0]
        for way in ways:
            found = []
            for task in (get(name), CountMetric(get(name).metric, monotone=True)):
                leaf = scores.to(dtype).requires_grad_()
                options = {"epsilon": epsilon, "generator": torch.Generator().manual_seed(0), **way}
                losses = dl.direct_loss(leaf, target, task, mask=mask, reduction="none", **options)
                found.append((losses.detach(), *torch.autograd.grad(losses.sum(), leaf)))
            torch.testing.assert_close(*found)


@pytest.mark.parametrize("name", NAMES)
def test_search_finds_what_the_full_grid_finds(name: str, generator: torch.Generator) -> None:
    """The same metric as a user's function knows nothing of lines, of monotony, or of what is within reach."""
    task = get(name)
    slow = CountMetric(task.metric)
    for tied, padded, dtype in product((False, True), (False, True), (torch.float64, torch.float32, torch.bfloat16)):
        for _ in range(4):
            scores, target, mask, epsilon = batch(generator, tied, padded)
            scores = scores.to(dtype)
            for sign in SIGNS:
                wanted = objective(slow, scores.double(), target, epsilon, sign, mask)
                found = objective(task, scores, target, epsilon, sign, mask)
                torch.testing.assert_close(found, wanted, rtol=TIGHT, atol=TIGHT)


@pytest.mark.parametrize("name", ["f1", "iou", "gmean"])
@pytest.mark.parametrize("sign", SIGNS)
def test_epsilon_broadcasts_over_the_problems(name: str, sign: int, generator: torch.Generator) -> None:
    scores = torch.randn(3, 4, 9, generator=generator)
    target, epsilon = torch.randint(2, (3, 4, 9), generator=generator), torch.rand(3, 1, generator=generator)
    task = get(name)
    found, wanted = (task.augmented(scores, target, some, sign).chosen for some in (epsilon, epsilon.expand(3, 4)))
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", [*NAMES, "bumpy"])
def test_padding_does_not_count(name: str, generator: torch.Generator) -> None:
    """Against all selections of the real items; up to 7 items, some or all of them padding."""
    task = CountMetric(bumpy_tensors) if name == "bumpy" else get(name)
    every = outputs(bumpy if name == "bumpy" else METRICS[name])
    for _ in range(12):
        n = int(torch.randint(1, 8, (), generator=generator))
        mask, target = torch.rand(n, generator=generator) < 0.7, torch.randint(2, (n,), generator=generator)
        if not bool(mask.any()):
            continue
        scores = draw_scores((n,), generator)
        pairs = list(every(scores[mask], target[mask]))
        scores, target = scores * mask, target * mask
        predicted = task.infer(scores, target, mask)
        assert float(task.score(scores, predicted)) == pytest.approx(max(f for f, _ in pairs), abs=TIGHT)
        for epsilon, sign in product((0.01, 0.3, 1.0, 30.0), SIGNS):
            output = task.augmented(scores, target, epsilon, sign, mask)
            assert not output.chosen[~mask].any()
            found = float(objective(task, scores, target, epsilon, sign, mask))
            assert found == pytest.approx(max(f + sign * epsilon * l for f, l in pairs), abs=1e-9)


@pytest.mark.parametrize("monotone", [False, True])
def test_pieces_change_nothing(monotone: bool, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large grids are worked on in pieces."""
    task = CountMetric(get("f1").metric, monotone=True) if monotone else CountMetric(bumpy_tensors)
    problems = [batch(generator, tied=True, padded=True) for _ in range(6)]

    def found() -> list[Tensor]:
        return [task.augmented(x, y, e, sign, mask).chosen for x, y, mask, e in problems for sign in SIGNS]

    whole = found()
    monkeypatch.setattr(grid, "CELLS", 50)
    pieces = found()
    assert all(torch.equal(a, b) for a, b in zip(whole, pieces, strict=True))


def cells(positives: int, negatives: int) -> tuple[Tensor, Tensor]:
    """All true positives (rows) against all false positives (columns)."""
    return torch.arange(positives + 1.0).double()[:, None], torch.arange(negatives + 1.0).double()[None]


@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_monotone(name: str) -> None:
    """What the search takes for granted: one more wrong decision never helps."""
    task = get(name)
    assert task.monotone
    for positives, negatives in product(range(8), repeat=2):
        tp, fp = cells(positives, negatives)
        loss = task.loss_of_counts(tp, fp, positives - tp, negatives - fp)
        assert bool((loss.diff(dim=0) <= TIGHT).all())
        assert bool((loss.diff(dim=1) >= -TIGHT).all())


@pytest.mark.parametrize("name", [name for name in NAMES if get(name).line in ("predicted", "false positives")])
def test_losses_are_linear_where_they_say_so(name: str) -> None:
    """At a fixed number of predicted positives, or of false positives."""
    task = get(name)
    for positives, negatives in product(range(8), repeat=2):
        tp, fp = cells(positives, negatives)
        loss = task.loss_of_counts(tp, fp, positives - tp, negatives - fp)
        if task.line == "false positives":
            lines = list(loss.T)
        else:
            flipped = loss.flip(1)  # the diagonals of this have tp + fp fixed
            lines = [flipped.diagonal(offset) for offset in range(-positives, negatives + 1)]
        assert max(float(line.diff(n=2).abs().max()) if len(line) > 2 else 0.0 for line in lines) < TIGHT


def test_own_functions_have_no_lines() -> None:
    assert CountMetric(bumpy_tensors).line is None


# ---------------------------------------------------------------------------------------------- ties


def test_a_score_of_zero_is_a_no() -> None:
    assert tasks.FBeta().predict(torch.tensor([0.0, -0.0, 1e-45, -1e-45])).tolist() == [0, 0, 1, 0]


def test_among_equal_scores_the_lower_index_is_flipped_first() -> None:
    scores, target = torch.full((5,), -0.5), torch.ones(5, dtype=torch.long)
    chosen = tasks.Recall().augmented(scores, target, 0.5, -1).chosen
    assert chosen.tolist() == [0, 0, 0, 0, 0], "each flip costs as much as it brings, so the plain output stays"
    scores[1:] = torch.tensor([-0.1, -9.0, -0.1, -0.1])
    # Each of these three costs 0.02 and lowers the loss by 0.2, so that it pays from an epsilon of 0.1 on.
    assert tasks.Recall().augmented(scores, target, 0.11, -1).chosen.tolist() == [0, 1, 0, 1, 1]
    # A metric that has enough of two takes the first two of the three.
    two = CountMetric(lambda tp, fp, fn, tn: tp.clamp(max=2) / 2, monotone=True)
    assert two.augmented(scores, target, 0.11, -1).chosen.tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("name", [*NAMES, "bumpy"])
def test_the_plain_prediction_stays_if_nothing_is_better(name: str, generator: torch.Generator) -> None:
    """So the gradient is exactly zero there."""
    task = CountMetric(bumpy_tensors) if name == "bumpy" else get(name)
    stayed = 0
    for _ in range(25):
        n = int(torch.randint(1, 8, (), generator=generator))
        scores = torch.randint(-8, 9, (n,), generator=generator).double() / 8
        target = torch.randint(2, (n,), generator=generator)
        plain = task.infer(scores, target)
        for epsilon, sign in product((0.125, 0.5, 1.0), SIGNS):
            here = task.score(scores, plain) + sign * epsilon * task.loss(plain, target)
            if float(here) >= float(objective(task, scores, target, epsilon, sign)) - TIGHT / 1000:
                stayed += 1
                assert torch.equal(task.augmented(scores, target, epsilon, sign).chosen, plain.chosen)
    assert stayed > 10


# ---------------------------------------------------------------------------------------------- magnitudes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("power", [-1000, -300, 300, 900])
def test_scale_does_not_matter(name: str, power: int, generator: torch.Generator) -> None:
    """Scores and epsilon times a power of two: the same output, from near the smallest to near the largest double."""
    task, factor = get(name), 2.0**power
    for _ in range(5):
        scores, target, mask, epsilon = batch(generator, tied=False, padded=True)
        for sign in SIGNS:
            wanted = task.augmented(scores, target, epsilon, sign, mask).chosen
            found = task.augmented(scores * factor, target, epsilon * factor, sign, mask).chosen
            assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("huge", [1e20, 1e300, 1.7e308])
def test_a_huge_score_does_not_drown_the_small_ones(name: str, huge: float, generator: torch.Generator) -> None:
    """An item that is far too expensive to flip is the same at any price."""
    task = get(name)
    for _ in range(5):
        scores, target, _, epsilon = batch(generator, tied=False, padded=False)
        scores, target = (torch.cat([part, part[:, :2]], -1) for part in (scores, target))
        scores[:, -2:] = torch.tensor([1e4, -1e4])
        far = scores.clone()
        far[:, -2:] = torch.tensor([huge, -huge], dtype=torch.float64)
        for sign in SIGNS:
            wanted = task.augmented(scores, target, epsilon, sign).chosen
            assert torch.equal(task.augmented(far, target, epsilon, sign).chosen, wanted)


@pytest.mark.filterwarnings("ignore:.*but no gradient")
@pytest.mark.parametrize("epsilon", [5e-324, 1e-40, 1e40, 1.7e308, "auto"])
@pytest.mark.parametrize("scale", [5e-324, 1e-30, 1.0, 1e300])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_stay_finite(epsilon: float | str, scale: float, dtype: torch.dtype) -> None:
    scores = (torch.tensor([1.0, -1.0, 0.5, -2.0, 0.0, 3.0], dtype=torch.float64) * scale).clamp(-3e38, 3e38).to(dtype)
    target = torch.tensor([1, 1, 0, 0, 1, 1])
    for name, sign, noise in product(NAMES, SIGNS, (0, 1.0)):
        leaf = scores.clone().requires_grad_()
        loss = dl.direct_loss(leaf, target, name, epsilon=epsilon, sign=sign, noise=noise)
        loss.backward()
        assert math.isfinite(float(loss.detach()))
        assert leaf.grad is not None
        assert bool(leaf.grad.isfinite().all())


def test_a_huge_epsilon_still_prefers_the_cheaper_of_two_equal_losses() -> None:
    """Recall does not care about negatives, so they stay as they are, even where their price is lost in rounding."""
    scores, target = torch.tensor([-1.0, -2.0, 3.0, -3.0]), torch.tensor([1, 1, 0, 0])
    assert tasks.Recall().augmented(scores, target, 1e30, -1).chosen.tolist() == [1, 1, 1, 0]
    assert tasks.Recall().augmented(-scores, target, 1e30, +1).chosen.tolist() == [0, 0, 0, 1]


# ---------------------------------------------------------------------------------------------- through the engine


@pytest.mark.filterwarnings("ignore:.*but no gradient")
@pytest.mark.parametrize("name", [*NAMES])
def test_gradient_pushes_positives_up_and_negatives_down(name: str, generator: torch.Generator) -> None:
    moved = 0
    for _ in range(20):
        scores, target, mask, epsilon = batch(generator, tied=False, padded=True)
        for sign in SIGNS:
            leaf = scores.clone().requires_grad_()
            options: dict[str, Any] = {"mask": mask, "epsilon": epsilon, "sign": sign, "reduction": "none"}
            with _nothing() if bool(mask.any(-1).all()) else pytest.warns(dl.DirectLossWarning, match="no loss"):
                dl.direct_loss(leaf, target, name, **options).sum().backward()
            assert leaf.grad is not None
            assert not leaf.grad[~mask].any()
            assert not (leaf.grad[target == 1] > 0).any()
            assert not (leaf.grad[target == 0] < 0).any()
            moved += int(leaf.grad.count_nonzero())
    assert moved > 50


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_problems_of_one_class_count_and_empty_ones_do_not() -> None:
    """False alarms can be fewer even where there is nothing to find."""
    scores = torch.tensor([[0.1, -0.2], [0.1, -0.2], [0.0, 0.0]], requires_grad=True)
    target, mask = torch.tensor([[0, 0], [1, 1], [0, 0]]), torch.tensor([[True, True], [True, True], [False, False]])
    with pytest.warns(dl.DirectLossWarning, match="1 of 3 problems have no loss under FBeta"):
        loss = dl.direct_loss(scores, target, "f1", epsilon=1.0, sign=-1, mask=mask)
    assert loss.item() == pytest.approx((1 + 1 / 3) / 2)
    loss.backward()
    assert scores.grad is not None
    assert float(scores.grad[0, 0]) > 0
    assert float(scores.grad[1, 1]) < 0
    assert not scores.grad[2].any()
    wanted = dl.hinge_loss(scores[:2], target[:2], "f1").item()
    with pytest.warns(dl.DirectLossWarning, match="1 of 3 problems have no loss under IoU"):
        dl.hinge_loss(scores, target, "iou", mask=mask)
    with pytest.warns(dl.DirectLossWarning, match="1 of 3 problems have no loss under FBeta"):
        assert dl.hinge_loss(scores, target, "f1", mask=mask).item() == pytest.approx(wanted)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float32, torch.float64])
def test_labels_of_any_type(dtype: torch.dtype, generator: torch.Generator) -> None:
    scores, target, *_ = batch(generator, tied=False, padded=False)
    for loss in (dl.direct_loss, dl.hinge_loss, dl.perceptron_loss):
        wanted = loss(scores, target, "iou")
        assert torch.equal(loss(scores, target.to(dtype), "iou"), wanted)
        mask = torch.ones_like(target, dtype=torch.bool)
        assert torch.equal(loss(scores, target.to(dtype), "iou", mask=mask), wanted)


def test_outputs_without_and_with_a_target() -> None:
    task, scores, target = tasks.IoU(), torch.tensor([1.0, 2.0, -1.0, 4.0]), torch.tensor([1, 0, 1, 0])
    mask = torch.arange(4) < 3
    plain = task.predict(scores)
    seen = task.infer(scores, target, mask)
    assert seen.chosen.tolist() == [1, 1, 0, 0]
    assert int(seen.items) == 3
    assert float(task.loss(plain, target, mask)) == float(task.loss(seen, target, mask)) == pytest.approx(2 / 3)
    assert float(task.score(scores, seen)) == pytest.approx(1.0)
    assert float(task.score(scores, plain)) == pytest.approx(7 / 4), "without a target nothing is padding"
    assert task.truth(target, mask).chosen.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("options", [{"sign": -1}, {"noise": 0.1, "likelihood": 0}], ids=["theorem", "moves"])
@pytest.mark.parametrize("name", ["f1", "iou", "gmean"])
def test_one_step_up_the_gradient_lowers_the_loss(
    name: str, options: dict[str, Any], generator: torch.Generator
) -> None:
    """A linear model on separable data learns from the metric alone."""
    inputs = torch.randn(300, 5, generator=generator, dtype=torch.float64)
    target = (inputs @ torch.tensor([1.0, -2.0, 0.5, 0.0, 1.0], dtype=torch.float64) > 1.5).long()
    weights = (0.1 * torch.randn(6, generator=generator, dtype=torch.float64)).requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=0.03)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss = dl.direct_loss(inputs @ weights[:5] + weights[5], target, name, **options)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 0.3
    assert min(losses[-20:]) < 0.05


# ---------------------------------------------------------------------------------------------- automatic epsilon


@pytest.mark.parametrize("name", NAMES)
def test_unit_epsilon_is_that_of_the_most_important_flip(name: str, generator: torch.Generator) -> None:
    """From right decisions, by the loss of every single flip: it moves F by 1 / n for each unit of its score."""
    task = get(name)
    for _ in range(10):
        scores, target, mask, _ = batch(generator, tied=False, padded=True)
        found = torch.as_tensor(task.unit_epsilon(scores, target, mask))
        assert found.shape == target.shape[:-1]
        for every, real, unit in zip(target, mask, found, strict=True):
            labels = every[real]
            right = labels.double()
            flips = (right - torch.eye(len(labels), dtype=torch.float64)).abs()
            items = torch.tensor(len(labels))
            losses = [float(task.loss(Selection(chosen, items), labels)) for chosen in (right, *flips)]
            drop = max((loss - losses[0] for loss in losses[1:]), default=0.0)
            assert float(unit) == pytest.approx(1 / (len(labels) * drop) if drop > 0 else 1.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1], [0, 1, 1]])
@pytest.mark.parametrize("real", [3, 1, 0])
def test_unit_epsilon_is_always_positive(name: str, labels: list[int], real: int) -> None:
    mask = torch.arange(3) < real
    unit = float(get(name).unit_epsilon(torch.zeros(3), torch.tensor(labels) * mask, mask))
    assert 0 < unit < math.inf


# ---------------------------------------------------------------------------------------------- names and wrong input

REPRS = {
    "f1": "FBeta(1.0)",
    "fbeta": "FBeta(1.0)",
    "fbeta@2": "FBeta(2.0)",
    "precision": "Precision()",
    "precision@5": "PrecisionAtK(5)",
    "recall": "Recall()",
    "recall@5": "RecallAtK(5)",
    "iou": "IoU()",
    "jaccard": "IoU()",
    "dice": "Dice()",
    "mcc": "Matthews()",
    "kappa": "Kappa()",
    "balanced_accuracy": "BalancedAccuracy()",
    "gmean": "GMean()",
}


@pytest.mark.parametrize("name", REPRS)
def test_names(name: str) -> None:
    assert repr(tasks.get(name)) == REPRS[name]


def test_own_function_shows_its_name() -> None:
    assert repr(CountMetric(bumpy_tensors)) == "CountMetric(bumpy_tensors, monotone=False)"


def as_given(value: Any) -> Callable[..., Any]:
    return lambda tp, fp, fn, tn: value


FUNCTION = "function(tp, fp, fn, tn)"
SHAPE = f"{FUNCTION} must have the shape of the counts, (25,), but it is of shape ()"
FINITE = f"{FUNCTION} must be finite for all counts, but it is"
ON_TENSORS = f"{FUNCTION} must work on tensors of counts, but it is one that raises"
NO_FUNCTION = "function must be a function of the four counts tp, fp, fn, tn, but it is 3"
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: tasks.FBeta(0.0), "beta must be positive and finite, but it is 0.0"),
    (lambda: tasks.FBeta(-2), "beta must be positive and finite, but it is -2"),
    (lambda: tasks.FBeta(math.inf), "beta must be positive and finite, but it is inf"),
    (lambda: tasks.FBeta("1"), "beta must be a positive number, but it is '1'"),  # type: ignore[arg-type]
    (lambda: tasks.get("fbeta@0"), "beta must be positive and finite, but it is 0"),
    (lambda: tasks.get("f1@2"), "task takes no number: 'f1' stands alone, but it is 'f1@2'"),
    (lambda: tasks.get("iou@2"), "task takes no number: 'iou' stands alone, but it is 'iou@2'"),
    (lambda: tasks.get("precision@0"), "k must be a whole number of at least 1, but it is 0"),
    (lambda: CountMetric(3), NO_FUNCTION),  # type: ignore[arg-type]
    (lambda: CountMetric(as_given(0.5)), f"{FUNCTION} must be a tensor, but it is a float"),
    (lambda: CountMetric(as_given(None)), f"{FUNCTION} must be a tensor, but it is a NoneType"),
    (lambda: CountMetric(as_given(torch.ones(()))), SHAPE),
    (lambda: CountMetric(lambda tp, fp, fn, tn: tp.sum()), SHAPE),
    (lambda: CountMetric(lambda tp, fp, fn, tn: tp / (tp + fp)), f"{FINITE} nan at tp = 0, fp = 0, fn = 1, tn = 1"),
    (lambda: CountMetric(lambda tp, fp, fn, tn: 1 / fp), f"{FINITE} inf at tp = 0, fp = 0"),
    (lambda: CountMetric(lambda tp, fp, fn, tn: tp / fp if fp else tp), f"{ON_TENSORS} RuntimeError: Boolean value"),
    (lambda: CountMetric(lambda tp, fp, fn, tn: math.sqrt(tp)), f"{ON_TENSORS} ValueError: only one element"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_tasks_are_refused_when_built(call: Callable[[], object], message: str) -> None:
    with pytest.raises(dl.DirectLossError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_a_function_that_fails_later_is_named() -> None:
    """Finite for problems with both classes, but not for one without positives."""
    task = CountMetric(lambda tp, fp, fn, tn: tp / (tp + fn))
    with pytest.raises(dl.DirectLossError, match="it is nan at tp = 0, fp = 1, fn = 0, tn = 1"):
        dl.direct_loss(torch.tensor([1.0, -1.0]), torch.tensor([0, 0]), task)


SCORES = torch.tensor([[0.5, -0.5, 1.0], [0.1, 0.2, 0.3]])
LABELS = torch.tensor([[1, 0, 0], [0, 1, 1]])
WRONG_DATA: list[tuple[Any, Any, str]] = [
    (SCORES.long(), LABELS, "scores must be floating point, but it is torch.int64"),
    (SCORES / 0, LABELS, "scores must be finite, but it is inf at index [0, 0]"),
    (torch.tensor(1.0), torch.tensor(1), "scores must have shape (..., n), but it is of shape ()"),
    (SCORES, LABELS[0], "target must have the shape of scores, (2, 3), but it is of shape (3,)"),
    (SCORES, LABELS + 1, "target must hold only 0 or 1, but it is 2 at index [0, 0]"),
    (SCORES, 2 * LABELS - 1, "target must hold only 0 or 1, but it is -1 at index [0, 1]. Leave items out"),
    (SCORES, LABELS / 2, "target must hold only 0 or 1, but it is 0.5"),
]


@pytest.mark.parametrize("name", ["f1", "iou", "gmean"])
@pytest.mark.parametrize(("scores", "target", "message"), WRONG_DATA)
def test_wrong_data_is_named(name: str, scores: Any, target: Any, message: str) -> None:
    for loss in (dl.direct_loss, dl.hinge_loss, dl.perceptron_loss):
        with pytest.raises(dl.DirectLossError) as caught:
            loss(scores, target, name)
        assert str(caught.value).startswith(message)
