"""The engine around the tasks: reductions, weights, dimensions, precision, compilation, and tasks of a user's own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import directloss as dl
from tests.toys import Hamming, Pick

SCORES = torch.tensor([[0.3, 0.1, 0.2, -0.4], [1.0, -1.0, 0.5, 0.7], [0.2, 0.9, 0.4, 0.8]])
RANKED = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 1, 0]])


def slope(scores: Tensor, loss: Tensor) -> Tensor:
    return torch.autograd.grad(loss, scores)[0]


# ---------------------------------------------------------------------------------------------- values by hand


def test_value_and_gradient_by_hand() -> None:
    """One relevant item below one irrelevant: AP = 1/2. Moving it up costs F = 2 * 0.5 and wins epsilon / 2."""
    scores = torch.tensor([0.0, 0.5], requires_grad=True)
    target = torch.tensor([1, 0])
    for epsilon, wanted in [(1.9, [0.0, 0.0]), (2.1, [-2 / 2.1, 2 / 2.1])]:
        loss = dl.direct_loss(scores, target, "ap", epsilon=epsilon, sign=-1)
        assert loss.item() == 0.5
        torch.testing.assert_close(slope(scores, loss), torch.tensor(wanted))


@pytest.mark.parametrize("task", ["ap", "auc", "ndcg"])
def test_training_improves_the_metric(task: str) -> None:
    torch.manual_seed(3)
    inputs = torch.randn(200, 5)
    target = (inputs[:, 0] * inputs[:, 1] + 0.5 * inputs[:, 2] > 0.8).long()
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    loss_fn = dl.DirectLoss(task)
    losses = []
    for _ in range(60):
        loss = loss_fn(model(inputs).squeeze(-1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


# ---------------------------------------------------------------------------------------------- reductions and weights


def test_reductions() -> None:
    each = dl.direct_loss(SCORES, RANKED, "ap", reduction="none")
    assert each.shape == (3,)
    torch.testing.assert_close(dl.direct_loss(SCORES, RANKED, "ap"), each.mean())
    torch.testing.assert_close(dl.direct_loss(SCORES, RANKED, "ap", reduction="sum"), each.sum())


@pytest.mark.parametrize("loss_fn", [dl.direct_loss, dl.hinge_loss])
def test_gradients_of_reductions(loss_fn: object) -> None:
    scores = SCORES.clone().requires_grad_()
    options = {"task": "ap", "epsilon": 1.0}
    total = slope(scores, loss_fn(scores, RANKED, reduction="sum", **options))  # type: ignore[operator]
    torch.testing.assert_close(slope(scores, loss_fn(scores, RANKED, **options)), total / 3)  # type: ignore[operator]


def test_weight_is_a_weighted_mean() -> None:
    weight = torch.tensor([2.0, 0.0, 1.0])
    each = dl.direct_loss(SCORES, RANKED, "ap", reduction="none")
    found = dl.direct_loss(SCORES, RANKED, "ap", weight=weight)
    torch.testing.assert_close(found, (each * weight).sum() / weight.sum())
    torch.testing.assert_close(dl.direct_loss(SCORES, RANKED, "ap", weight=weight, reduction="none"), each * weight)


def test_weight_scales_the_gradient() -> None:
    scores = SCORES.clone().requires_grad_()
    weight = torch.tensor([2.0, 0.0, 1.0])
    plain = slope(scores, dl.direct_loss(scores, RANKED, "ap", epsilon=1.0, reduction="sum"))
    found = slope(scores, dl.direct_loss(scores, RANKED, "ap", epsilon=1.0, reduction="sum", weight=weight))
    torch.testing.assert_close(found, plain * weight[:, None])


def test_weights_of_zero_give_zero() -> None:
    scores = SCORES.clone().requires_grad_()
    loss = dl.direct_loss(scores, RANKED, "ap", weight=torch.zeros(3))
    assert loss.item() == 0
    assert not slope(scores, loss).any()


def test_problems_without_a_loss_are_left_out_and_announced_once() -> None:
    target = RANKED.clone()
    target[1] = 0
    scores = SCORES.clone().requires_grad_()
    with pytest.warns(dl.DirectLossWarning, match="1 of 3 problems have no loss"):
        loss = dl.direct_loss(scores, target, "ap", epsilon=5.0)
    others = torch.tensor([0, 2])
    again = dl.direct_loss(scores, target, "ap", epsilon=5.0)  # a second warning would be an error here
    torch.testing.assert_close(again, dl.direct_loss(scores[others], target[others], "ap", epsilon=5.0))
    gradient = slope(scores, loss)
    assert not gradient[1].any()
    assert gradient[others].any()


# ---------------------------------------------------------------------------------------------- dimensions


@pytest.mark.parametrize("task", ["ap", "f1"])
def test_dim_moves_one_dimension(task: str) -> None:
    wanted = dl.direct_loss(SCORES.T, RANKED.T, task, reduction="none")
    found = dl.direct_loss(SCORES, RANKED, task, dim=0, reduction="none")
    assert found.shape == (4,)
    assert torch.equal(found, wanted)


def test_dim_of_several_dimensions() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 3, 4, 5, generator=generator, requires_grad=True)
    target = torch.randint(2, scores.shape, generator=generator)
    for dim in [(1, 3), (3, 1), (-1, -3), [1, 3]]:
        found = dl.direct_loss(scores, target, "ap", dim=dim, epsilon=1.0, reduction="none")
        flat = scores.permute(0, 2, 1, 3).flatten(2), target.permute(0, 2, 1, 3).flatten(2)
        wanted = dl.direct_loss(*flat, "ap", epsilon=1.0, reduction="none")
        assert found.shape == (2, 4)
        assert torch.equal(found, wanted)
        torch.testing.assert_close(slope(scores, found.sum()), slope(scores, wanted.sum()))


def test_dim_with_mask() -> None:
    mask = torch.ones_like(RANKED, dtype=torch.bool)
    mask[0, 3] = mask[2, 0] = False
    found = dl.direct_loss(SCORES, RANKED, "auc", dim=0, mask=mask, reduction="none")
    wanted = dl.direct_loss(SCORES.T, RANKED.T, "auc", mask=mask.T, reduction="none")
    assert torch.equal(found, wanted)


def test_dim_of_classes_moves_the_scores_alone() -> None:
    target = torch.tensor([0, 1, 2, 1])
    found = dl.direct_loss(SCORES, target, "accuracy", dim=0, reduction="none")
    assert torch.equal(found, dl.direct_loss(SCORES.T, target, "accuracy", reduction="none"))


def test_leading_batch_dimensions() -> None:
    scores, target = SCORES.reshape(3, 2, 2), RANKED.reshape(3, 2, 2)
    wanted = [dl.hinge_loss(s, t, "error", reduction="none") for s, t in zip(scores, target, strict=True)]
    assert torch.equal(dl.hinge_loss(scores, target, "error", reduction="none"), torch.stack(wanted))


def test_epsilon_for_each_problem() -> None:
    scores = SCORES.clone().requires_grad_()
    epsilon = torch.tensor([0.5, 1.0, 3.0])
    found = slope(scores, dl.direct_loss(scores, RANKED, "ap", epsilon=epsilon, reduction="sum"))
    for index, value in enumerate(epsilon.tolist()):
        alone = slope(scores, dl.direct_loss(scores[index], RANKED[index], "ap", epsilon=value))
        torch.testing.assert_close(found[index], alone[index])


# ---------------------------------------------------------------------------------------------- like any other loss


def test_works_under_autocast() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    inputs, target = torch.randn(16, 4), (torch.arange(16) % 3 == 0).long()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(inputs).squeeze(-1)
        loss = dl.direct_loss(scores, target, "ap", epsilon=1.0)
    assert scores.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    loss.backward()
    assert model.weight.grad is not None
    assert model.weight.grad.dtype == torch.float32
    assert bool(model.weight.grad.isfinite().all())
    exact = dl.direct_loss(scores.detach().double(), target, "ap")
    torch.testing.assert_close(loss.detach().double(), exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("task", ["ap", "accuracy"])
def test_loss_scaling_does_not_turn_the_gradient(task: str) -> None:
    """Mixed precision multiplies the loss by a large number and divides the gradient by it."""
    target = RANKED if task == "ap" else torch.tensor([1, 2, 0])
    scores = SCORES.clone().requires_grad_()
    plain = slope(scores, dl.direct_loss(scores, target, task, epsilon=1.0))
    scaled = slope(scores, 2.0**16 * dl.direct_loss(scores, target, task, epsilon=1.0))
    torch.testing.assert_close(scaled / 2**16, plain)


def test_gradient_accumulation() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    twin = copy.deepcopy(model)
    inputs, target = torch.randn(6, 8, 4), (torch.arange(48) % 3 == 0).long().reshape(6, 8)
    dl.direct_loss(model(inputs).squeeze(-1), target, "ap", epsilon=1.0).backward()
    for part in range(3):
        chosen = slice(2 * part, 2 * part + 2)
        loss = dl.direct_loss(twin(inputs[chosen]).squeeze(-1), target[chosen], "ap", epsilon=1.0)
        (loss / 3).backward()
    torch.testing.assert_close(twin.weight.grad, model.weight.grad)


def test_sum_with_another_loss() -> None:
    scores = SCORES.clone().requires_grad_()
    direct = dl.direct_loss(scores, RANKED, "ap", epsilon=1.0)
    other = nn.functional.binary_cross_entropy_with_logits(scores, RANKED.float())
    both = slope(scores, direct + 0.1 * other)
    direct = dl.direct_loss(scores, RANKED, "ap", epsilon=1.0)
    other = nn.functional.binary_cross_entropy_with_logits(scores, RANKED.float())
    torch.testing.assert_close(both, slope(scores, direct) + 0.1 * slope(scores, other))


def test_scores_without_gradient_are_evaluation() -> None:
    assert not dl.direct_loss(SCORES, RANKED, "ap").requires_grad


def test_input_is_left_alone() -> None:
    scores, target = SCORES.clone(), RANKED.clone()
    mask = torch.ones_like(target, dtype=torch.bool)
    mask[:, 0] = False
    mask[1, 0] = True
    for loss in (dl.direct_loss, dl.hinge_loss, dl.perceptron_loss):
        loss(scores, target, "auc", mask=mask)
    assert torch.equal(scores, SCORES)
    assert torch.equal(target, RANKED)


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int32, torch.float32])
def test_labels_of_any_type(kind: torch.dtype) -> None:
    for options in ({}, {"mask": torch.ones_like(RANKED, dtype=torch.bool)}):
        found = dl.direct_loss(SCORES, RANKED.to(kind), "ap", **options)
        assert torch.equal(found, dl.direct_loss(SCORES, RANKED, "ap", **options))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler warns about itself; what counts here is the result
@pytest.mark.parametrize("task", ["ap", "accuracy"])
def test_torch_compile_gives_the_same_result(task: str) -> None:
    torch.manual_seed(0)
    target = RANKED if task == "ap" else torch.tensor([1, 2, 0])
    model = nn.Linear(4, 4)
    twin = copy.deepcopy(model)

    def step(model: nn.Module) -> Tensor:
        loss = dl.direct_loss(model(SCORES), target, task, epsilon=1.0)
        loss.backward()
        return loss.detach()

    compiled = torch.compile(step, backend="aot_eager")
    assert torch.equal(compiled(model), step(twin))
    torch.testing.assert_close(model.weight.grad, twin.weight.grad)


# ---------------------------------------------------------------------------------------------- a user's own task


def test_duck_typed_task_equals_the_registered_one() -> None:
    target = torch.tensor([1, 2, 0])
    for loss in (dl.direct_loss, dl.hinge_loss):
        own, ours = SCORES.clone().requires_grad_(), SCORES.clone().requires_grad_()
        found, wanted = loss(own, target, Pick(), epsilon=0.7), loss(ours, target, "accuracy", epsilon=0.7)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(slope(own, found), slope(ours, wanted))


class Prototypes(nn.Module):
    """Choose the nearest prototype: F is not linear in the scores, and has parameters of its own."""

    event_dims, target_dims = 1, 0

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.tensor([[0.0, 0.0], [1.0, 1.0], [-1.0, 1.0]]))

    def all_scores(self, scores: Tensor) -> Tensor:
        return -(scores.unsqueeze(-2) - self.points).square().sum(-1)

    def predict(self, scores: Tensor) -> Tensor:
        return self.all_scores(scores).argmax(-1)

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Tensor:
        return Pick().augmented(self.all_scores(scores), target, epsilon, sign)

    def truth(self, target: Tensor) -> Tensor:
        return target

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return output != target

    def score(self, scores: Tensor, output: Tensor) -> Tensor:
        return Pick().score(self.all_scores(scores), output)


def test_nonlinear_score_with_parameters_of_its_own() -> None:
    task = Prototypes()
    points = torch.tensor([[0.4, 0.45], [0.2, 0.1]], requires_grad=True)
    target = torch.tensor([0, 1])
    loss = dl.direct_loss(points, target, task, epsilon=0.5, reduction="sum")
    assert loss.item() == 1  # the second point lies nearest to prototype 0
    loss.backward()
    # By hand: the first point alone changes its choice, from 0 to 1: -(0.6^2 + 0.55^2) + 0.5 > -(0.4^2 + 0.45^2).
    # dF/dz = -2 (z - p), so dF(1) - dF(0) = 2 (p1 - p0) = (2, 2), times sign / epsilon = 2. The prototypes get
    # dF/dp = 2 (z - p).
    first = points.detach()[0]
    torch.testing.assert_close(points.grad, torch.tensor([[4.0, 4.0], [0.0, 0.0]]))
    wanted = torch.stack([-4 * first, 4 * (first - 1), torch.zeros(2)])
    torch.testing.assert_close(task.points.grad, wanted)


def test_module_says_what_it_is() -> None:
    assert repr(dl.DirectLoss(Pick(), epsilon=2.0, sign=-1)) == (
        "DirectLoss(Pick(), epsilon=2.0, sign=-1, reduction='mean')"
    )


def test_modules_take_what_the_functions_take() -> None:
    mask = torch.ones_like(RANKED, dtype=torch.bool)
    mask[:, 3] = False
    weight = torch.tensor([1.0, 2.0, 0.5])
    found = dl.DirectLoss("auc", epsilon=2.0, sign=-1, reduction="sum", check_values=False)(
        SCORES, RANKED, mask, weight
    )
    wanted = dl.direct_loss(
        SCORES, RANKED, "auc", epsilon=2.0, sign=-1, reduction="sum", mask=mask, weight=weight, check_values=False
    )
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("kind", [dl.DirectLoss, dl.HingeLoss])
def test_a_tensor_of_epsilons_moves_and_is_saved_with_its_module(kind: type[torch.nn.Module]) -> None:
    module = kind("ap", epsilon=torch.tensor([0.1, 0.2]))
    assert list(module.state_dict()) == ["epsilon"]
    assert module.double().epsilon.dtype == torch.float64


@pytest.mark.parametrize("name", ["ap", "ndcg@3", "f1", "mcc", "graded_ndcg", "error"])
@pytest.mark.filterwarnings("ignore:.*problems have no loss")
def test_compiled_gradients_are_those_of_eager_mode(name: str) -> None:
    """Also where a list lacks positives, and for every family that computes its gradient itself."""
    scores = torch.tensor([[0.3, -0.2, 0.9, 0.1], [0.5, 0.4, -0.3, 0.2]])
    labels = torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0]])
    found = []
    for module in (dl.DirectLoss(name), torch.compile(dl.DirectLoss(name), backend="eager")):
        leaf = scores.clone().requires_grad_()
        loss = module(leaf, labels)
        loss.backward()
        found.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1])
    assert found[0][1].any()


@pytest.mark.parametrize("sign", [1, -1])
def test_huge_scores_have_a_value(sign: int) -> None:
    scores = torch.tensor([[3e38, -3e38, 0.0], [0.0, 1.0, 2.0]], requires_grad=True)
    loss = dl.direct_loss(scores, torch.tensor([1, 2]), "accuracy", sign=sign)
    loss.backward()
    assert loss.item() == 0.5


@pytest.mark.parametrize("name", ["ap", "f1", "graded_ndcg"])
def test_a_large_loss_scale_acts_before_half_precision(name: str) -> None:
    scores = torch.randn(200_000, generator=torch.Generator().manual_seed(0)).half().requires_grad_()
    labels = (torch.rand(200_000, generator=torch.Generator().manual_seed(1)) < 0.1).long()
    wide = scores.detach().float().requires_grad_()
    for leaf in (scores, wide):
        (dl.direct_loss(leaf, labels, name, epsilon=0.5) * 4096.0).backward()
    torch.testing.assert_close(scores.grad.float(), wide.grad, rtol=2e-3, atol=1e-7)


@pytest.mark.parametrize("name", ["accuracy", "error", "topk@2"])
def test_masked_problems_do_not_move_the_automatic_epsilon(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn((6,) if name == "error" else (6, 4), generator=generator)
    labels = torch.randint(0, 2, (6,), generator=generator)
    padded = torch.cat([scores, torch.full((20, *scores.shape[1:]), torch.nan)])
    mask = torch.arange(26) < 6
    found = []
    for values, target, options in (
        (scores, labels, {}),
        (padded, torch.cat([labels, labels.new_zeros(20)]), {"mask": mask}),
    ):
        leaf = values.clone().requires_grad_()
        dl.direct_loss(leaf, target, name, **options).backward()
        found.append(leaf.grad[:6])
    torch.testing.assert_close(found[0], found[1])


def test_a_foreign_task_refuses_masks_it_does_not_know_of() -> None:
    with pytest.raises(dl.DirectLossError, match="mask must be left out"):
        dl.direct_loss(torch.randn(2, 3), torch.zeros(2, 3), Hamming(), mask=torch.ones(2, 3, dtype=torch.bool))


def test_a_task_must_return_one_loss_per_problem() -> None:
    class Forgetful(Hamming):
        def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return (output != target).float()

    with pytest.raises(dl.DirectLossError, match=r"task.loss must return one number per problem, shape \(2,\)"):
        dl.direct_loss(torch.randn(2, 3), torch.zeros(2, 3), Forgetful())


def test_targets_and_epsilons_may_carry_gradients_of_their_own() -> None:
    scores, labels = torch.tensor([0.1, 0.2]), torch.tensor([1.0, 0.0], requires_grad=True)
    assert dl.direct_loss(scores, labels, "ap", epsilon=torch.tensor(0.5, requires_grad=True)).item() == 0.5


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.float16(0.5), Fraction(1, 2)])
def test_numbers_of_other_libraries(number: object) -> None:
    scores = SCORES.clone().requires_grad_()
    found = slope(scores, dl.direct_loss(scores, RANKED, "ap", epsilon=number, sign=np.int64(-1)))
    assert torch.equal(found, slope(scores, dl.direct_loss(scores, RANKED, "ap", epsilon=0.5, sign=-1)))
    assert dl.DirectLoss(dl.tasks.NDCG(np.int64(3)), epsilon=number)(scores, RANKED).isfinite()


@pytest.mark.parametrize("call", [dl.direct_loss, dl.hinge_loss, lambda s, t, name: dl.DirectLoss(name)(s, t)])
def test_warnings_point_at_the_call(call: Callable[..., Tensor]) -> None:
    with pytest.warns(dl.DirectLossWarning) as caught:
        call(SCORES, torch.zeros_like(RANKED), "ap")
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]


@pytest.mark.parametrize("epsilon", [1e-320, torch.tensor(1e-44), torch.full((3,), 5e-324, dtype=torch.float64)])
@pytest.mark.parametrize("name", ["accuracy", "error", "ap"])
def test_a_tiny_epsilon_has_a_finite_gradient(name: str, epsilon: float | Tensor) -> None:
    target = torch.tensor([1, 2, 0]) if name == "accuracy" else RANKED
    scores = torch.zeros(3, 4, requires_grad=True)
    if name == "error" and isinstance(epsilon, Tensor):
        epsilon = epsilon.reshape(-1, 1)
    gradient = slope(scores, dl.direct_loss(scores, target, name, epsilon=epsilon))
    assert gradient.isfinite().all()
    assert (
        gradient.any() or name == "error"
    )  # in float32 this epsilon is 0, and nothing is within reach of the threshold


@pytest.mark.parametrize(("kind", "huge"), [(torch.float32, 3e38), (torch.float64, 1.7e308)])
@pytest.mark.parametrize("name", ["accuracy", "error", "chain"])
def test_the_automatic_epsilon_of_huge_scores_is_finite(name: str, kind: torch.dtype, huge: float) -> None:
    scores = torch.tensor([[0.5, -1.0, 1.0, 0.2], [1.0, 0.0, 0.3, -0.8], [0.3, 0.6, -0.4, 0.7]], dtype=kind)
    target = RANKED if name == "error" else torch.tensor([1, 2, 0])
    task = dl.tasks.get(name)
    plain, found = task.auto_epsilon(scores, target), task.auto_epsilon(scores * huge, target)
    torch.testing.assert_close(found / huge, plain)


@pytest.mark.parametrize("size", [1e-25, 1e20, 1e38])
def test_the_automatic_epsilon_of_paths_follows_the_scores(size: float) -> None:
    task = dl.tasks.GridPath(2, 2)
    scores = torch.tensor([[0.5, -1.0, 1.0, 0.2]]).reshape(1, 2, 2)
    target = task.predict(scores)
    torch.testing.assert_close(task.auto_epsilon(scores * size, target) / size, task.auto_epsilon(scores, target))


@pytest.mark.parametrize("spoiled", [100.0, torch.nan])
@pytest.mark.parametrize("name", ["accuracy", "chain", "ap", "f1"])
def test_a_problem_without_weight_has_no_part_in_anything(name: str, spoiled: float) -> None:
    """Not in an epsilon that is one for the whole call, either."""
    scores = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    target = torch.randint(4, (3, 5), generator=torch.Generator().manual_seed(1))
    if name != "chain":
        scores, target = scores[:, 0], target[:, 0] if name == "accuracy" else (scores[:, 1] > 0).long()
    weight = torch.tensor([1.0, 0.0, 2.0])
    wrong = scores.clone()
    wrong[1] *= spoiled
    for sign in (-1, "both"):
        found, wanted = (
            slope(free, dl.direct_loss(free, target, name, weight=weight, sign=sign))
            for free in (wrong.clone().requires_grad_(), scores.clone().requires_grad_())
        )
        torch.testing.assert_close(found, wanted)
        assert not found[1].any()
    masks = {"accuracy": torch.ones(3, dtype=torch.bool)}
    free = wrong.clone().requires_grad_()
    mask = masks.get(name, torch.ones_like(target) > 0)
    masked = dl.direct_loss(free, target, name, weight=weight, mask=mask, sign="both")
    assert slope(free, masked).isfinite().all()
    if name == "accuracy":  # where mask and weight say the same
        masked = scores.clone().requires_grad_()
        found = slope(masked, dl.direct_loss(masked, target, name, mask=weight > 0, weight=weight, sign="both"))
        torch.testing.assert_close(found, wanted)


def test_epsilons_of_single_problems_find_their_places_behind_a_mask() -> None:
    class Own(Pick):
        def auto_epsilon(self, scores: Tensor, target: Tensor) -> Tensor:
            return scores.amax(-1)

    scores = torch.tensor([[1.0, 0.5], [9.0, 0.0], [3.0, 2.9]], requires_grad=True)
    target, mask = torch.tensor([0, 0, 0]), torch.tensor([True, False, True])
    found = slope(scores, dl.direct_loss(scores, target, Own(), mask=mask, reduction="sum"))
    epsilon = torch.tensor([1.0, 1.0, 3.0])
    wanted = slope(scores, dl.direct_loss(scores, target, Own(), epsilon=epsilon, mask=mask, reduction="sum"))
    torch.testing.assert_close(found, wanted)
    assert found[2].any()


def test_hooks_of_a_foreign_task_are_called() -> None:
    class Own(Pick):
        def counted(self, target: Tensor) -> Tensor:
            return target != 2

        def auto_epsilon(self, scores: Tensor, target: Tensor) -> float:
            return 10.0

    scores, target = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], requires_grad=True), torch.tensor([0, 2])
    with pytest.warns(dl.DirectLossWarning, match="1 of 2 problems have no loss"):
        found = slope(scores, dl.direct_loss(scores, target, Own()))
    torch.testing.assert_close(found, torch.tensor([[-0.1, 0.1, 0.0], [0.0, 0.0, 0.0]]))


def test_a_task_that_is_a_module_keeps_its_parameters() -> None:
    class Own(nn.Module, Pick):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(3))

    assert [name for name, _ in dl.DirectLoss(Own()).named_parameters()] == ["task_module.bias"]


@pytest.mark.parametrize("task", ["error", "accuracy", "topk@2"])
@pytest.mark.parametrize("epsilon", [1e-4, 1e-7, 1e-30])
def test_gradients_in_half_precision_are_finite_for_tiny_epsilons(task: str, epsilon: float) -> None:
    scores = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).half()
    scores = (scores[:, 0] if task == "error" else scores).requires_grad_()
    target = torch.arange(6) % (2 if task == "error" else 4)
    dl.direct_loss(scores, target, task, epsilon=epsilon, sign=-1).backward()
    assert scores.grad is not None
    assert bool(torch.isfinite(scores.grad).all())


# ---------------------------------------------------------------------- what a user is told


@pytest.mark.filterwarnings("ignore:.*problems have no loss")
@pytest.mark.parametrize("name", ["ap", "f1"])
def test_lists_of_one_item_are_told(name: str) -> None:
    scores, target = torch.tensor([[1.0], [-1.0]]), torch.tensor([[1], [0]])
    with pytest.warns(dl.DirectLossWarning, match=r"are 2 problems of one item each.*squeeze\(-1\).*dim=0"):
        dl.direct_loss(scores, target, name)
    dl.direct_loss(scores, target, name)
    dl.direct_loss(scores, target, name, dim=0)


@pytest.mark.parametrize("name", ["f1", "iou", "error"])
def test_probabilities_are_told(name: str) -> None:
    target, probabilities = torch.arange(9) % 2, torch.linspace(0.1, 0.9, 9)
    for fine in (torch.zeros(9), probabilities - 0.5, probabilities * 2, probabilities[:7]):
        dl.direct_loss(fine, target[: len(fine)], name)
    with pytest.warns(dl.DirectLossWarning, match=r"All scores lie between 0 and 1.*scores - 0\.5"):
        dl.direct_loss(probabilities, target, name)


@pytest.mark.parametrize("name", ["f1", "recall", "ndcg@1"])
def test_a_standstill_is_told(name: str) -> None:
    """Nothing is worse than no hit at all."""
    scores, target = (-torch.arange(1.0, 11.0)).requires_grad_(), (torch.arange(10) % 3 == 1).long()
    with torch.no_grad():
        dl.direct_loss(scores, target, name)
    with pytest.warns(dl.DirectLossWarning, match=r'loss of 1 but no gradient with sign=\+1.*Use sign="both"'):
        loss = dl.direct_loss(scores, target, name)
    assert not slope(scores, loss).any()
    assert slope(scores, dl.direct_loss(scores, target, name, sign="both")).any()


@pytest.mark.parametrize("huge", [1e38, 3e38])
def test_gradients_of_huge_scores_of_classes_are_finite(huge: float) -> None:
    scores = (torch.tensor([[0.9, -0.2, 1.0], [0.1, 1.0, 0.8]]) * huge).requires_grad_()
    found = slope(scores, dl.direct_loss(scores, torch.tensor([0, 2]), "accuracy", sign="both"))
    assert found.isfinite().all()
