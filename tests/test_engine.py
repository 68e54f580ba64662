"""The engine around the tasks: reductions, weights, dimensions, precision, compilation, and tasks of a user's own."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import directloss as dl
from directloss.epsilon import REACH
from tests.toys import Hamming, Pick

SCORES = torch.tensor([[0.3, 0.1, 0.2, -0.4], [1.0, -1.0, 0.5, 0.7], [0.2, 0.9, 0.4, 0.8]])
RANKED = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 1, 0]])


def slope(scores: Tensor, loss: Tensor) -> Tensor:
    return torch.autograd.grad(loss, scores)[0]


def theorem(scores: Tensor, target: Tensor, task: Any, **options: Any) -> Tensor:
    """The paper's theorem on the scores as they are: its gradients can be compared."""
    return dl.direct_loss(scores, target, task, **{"epsilon": "auto", **options})


# ---------------------------------------------------------------------------------------------- values by hand


def test_value_and_gradient_by_hand() -> None:
    """One relevant item below one irrelevant: AP = 1/2. Moving it up costs F = 2 * 0.5 and wins epsilon / 2."""
    scores = torch.tensor([0.0, 0.5], requires_grad=True)
    target = torch.tensor([1, 0])
    for epsilon, wanted in [(1.9, [0.0, 0.0]), (2.1, [-2 / 2.1, 2 / 2.1])]:
        loss = theorem(scores, target, "ap", epsilon=epsilon, sign=-1)
        assert loss.item() == 0.5
        torch.testing.assert_close(slope(scores, loss), torch.tensor(wanted))


# ---------------------------------------------------------------------------------------------- reductions and weights


def test_reductions() -> None:
    each = dl.direct_loss(SCORES, RANKED, "ap", reduction="none")
    assert each.shape == (3,)
    torch.testing.assert_close(dl.direct_loss(SCORES, RANKED, "ap"), each.mean())
    torch.testing.assert_close(dl.direct_loss(SCORES, RANKED, "ap", reduction="sum"), each.sum())


@pytest.mark.parametrize("loss_fn", [theorem, dl.hinge_loss])
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
    plain = slope(scores, theorem(scores, RANKED, "ap", epsilon=1.0, reduction="sum"))
    found = slope(scores, theorem(scores, RANKED, "ap", epsilon=1.0, reduction="sum", weight=weight))
    torch.testing.assert_close(found, plain * weight[:, None])


def test_weights_of_zero_give_zero() -> None:
    scores = SCORES.clone().requires_grad_()
    loss = dl.direct_loss(scores, RANKED, "ap", weight=torch.zeros(3))
    assert loss.item() == 0
    assert not slope(scores, loss).any()


def test_problems_without_a_loss_are_left_out_and_announced() -> None:
    target = RANKED.clone()
    target[1] = 0
    scores = SCORES.clone().requires_grad_()
    with pytest.warns(dl.DirectLossWarning, match="1 of 3 problems have no loss"):
        loss = theorem(scores, target, "ap", epsilon=5.0)
    others = torch.tensor([0, 2])
    torch.testing.assert_close(loss, theorem(scores[others], target[others], "ap", epsilon=5.0))
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
        found = theorem(scores, target, "ap", dim=dim, epsilon=1.0, reduction="none")
        flat = scores.permute(0, 2, 1, 3).flatten(2), target.permute(0, 2, 1, 3).flatten(2)
        wanted = theorem(*flat, "ap", epsilon=1.0, reduction="none")
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
    found = slope(scores, theorem(scores, RANKED, "ap", epsilon=epsilon, reduction="sum"))
    for index, value in enumerate(epsilon.tolist()):
        alone = slope(scores, theorem(scores[index], RANKED[index], "ap", epsilon=value))
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
    plain = slope(scores, theorem(scores, target, task, epsilon=1.0))
    scaled = slope(scores, 2.0**16 * theorem(scores, target, task, epsilon=1.0))
    torch.testing.assert_close(scaled / 2**16, plain)


def test_gradient_accumulation() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    twin = copy.deepcopy(model)
    inputs, target = torch.randn(6, 8, 4), (torch.arange(48) % 3 == 0).long().reshape(6, 8)
    theorem(model(inputs).squeeze(-1), target, "ap", epsilon=1.0).backward()
    for part in range(3):
        chosen = slice(2 * part, 2 * part + 2)
        loss = theorem(twin(inputs[chosen]).squeeze(-1), target[chosen], "ap", epsilon=1.0)
        (loss / 3).backward()
    torch.testing.assert_close(twin.weight.grad, model.weight.grad)


def test_sum_with_another_loss() -> None:
    scores = SCORES.clone().requires_grad_()
    direct = theorem(scores, RANKED, "ap", epsilon=1.0)
    other = nn.functional.binary_cross_entropy_with_logits(scores, RANKED.float())
    both = slope(scores, direct + 0.1 * other)
    direct = theorem(scores, RANKED, "ap", epsilon=1.0)
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


# ---------------------------------------------------------------------------------------------- a user's own task


def test_duck_typed_task_equals_the_registered_one() -> None:
    target = torch.tensor([1, 2, 0])
    for loss in (theorem, dl.hinge_loss):
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
    loss = theorem(points, target, task, epsilon=0.5, sign=+1, reduction="sum")
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
    assert repr(dl.DirectLoss(Pick())) == "DirectLoss(Pick(), likelihood=0.0)"  # it has none
    assert (
        repr(dl.DirectLoss(Pick(), epsilon=2.0, sign=-1)) == "DirectLoss(Pick(), likelihood=0.0, epsilon=2.0, sign=-1)"
    )
    assert repr(dl.DirectLoss("f1", flips=0.2, likelihood=0.5)) == "DirectLoss(FBeta(1.0), likelihood=0.5, flips=0.2)"
    assert "flips=(0.1, 0.2)" in repr(dl.DirectLoss("f1", flips=(0.1, 0.2)))
    told = repr(dl.DirectLoss("error", sign="both", noise=2, samples=3, reduction="sum"))
    assert told == "DirectLoss(Error(), likelihood=0.0, noise=2, samples=3, sign='both', reduction='sum')"


@pytest.mark.parametrize("noise", [0, 1.0])
def test_parameters_of_a_task_are_learned_where_the_scores_are_given(noise: float) -> None:
    points, target = torch.tensor([[0.4, 0.45], [0.2, 0.1]]), torch.tensor([0, 1])
    found = []
    for leaf in (points, points.clone().requires_grad_()):
        task = Prototypes()
        torch.manual_seed(0)
        dl.direct_loss(leaf, target, task, epsilon=0.5, noise=noise).backward()
        found.append(task.points.grad)
    torch.testing.assert_close(*found)
    assert found[0].any()
    with torch.no_grad():
        assert not dl.direct_loss(points, target, task).requires_grad
    module = dl.DirectLoss(task, epsilon=0.5, noise=noise)  # also while there is a likelihood of the scores to follow
    module.task.likelihood = lambda scores, target: scores.sum(-1)
    assert module(points, target).requires_grad
    task.requires_grad_(False)
    assert not dl.direct_loss(points, target, task).requires_grad


# ---------------------------------------------------------------------- modules


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
    torch.testing.assert_close(module.state_dict()["epsilon"], torch.tensor([0.1, 0.2]))
    assert module.double().epsilon.dtype == torch.float64


@pytest.mark.parametrize("make", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
def test_copies_of_a_loss_compute_the_same(make: Callable[[nn.Module], nn.Module]) -> None:
    """They go on with a generator of their own, in the same state."""
    options = {"epsilon": torch.tensor([0.5, 1.0, 2.0]), "sign": -1, "samples": 3, "noise": 0.5}
    own = dl.DirectLoss("ap", generator=torch.Generator().manual_seed(0), **options)
    own(SCORES.clone().requires_grad_(), RANKED)
    twin = make(own)
    assert twin.generator is not own.generator
    assert repr(twin) == repr(own)
    assert torch.equal(*(module_slope(module, SCORES, RANKED) for module in (twin, own)))


def module_slope(module: nn.Module, scores: Tensor, target: Tensor, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    leaf = scores.clone().requires_grad_()
    return slope(leaf, module(leaf, target))


@pytest.mark.parametrize("sign", [1, -1])
def test_huge_scores_have_a_value(sign: int) -> None:
    scores = torch.tensor([[3e38, -3e38, 0.0], [0.0, 1.0, 2.0]], requires_grad=True)
    loss = theorem(scores, torch.tensor([1, 2]), "accuracy", sign=sign)
    loss.backward()
    assert loss.item() == 0.5


@pytest.mark.parametrize("name", ["ap", "f1", "graded_ndcg"])
def test_a_large_loss_scale_acts_before_half_precision(name: str) -> None:
    scores = torch.randn(200_000, generator=torch.Generator().manual_seed(0)).half().requires_grad_()
    labels = (torch.rand(200_000, generator=torch.Generator().manual_seed(1)) < 0.1).long()
    wide = scores.detach().float().requires_grad_()
    for leaf in (scores, wide):
        (theorem(leaf, labels, name, epsilon=0.5) * 4096.0).backward()
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
        theorem(leaf, target, name, **options).backward()
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


def test_a_loss_that_is_not_finite_is_told_to_its_task() -> None:
    class Broken(Hamming):
        def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return super().loss(output, target) / 0

    with pytest.raises(dl.DirectLossError, match=r"task.loss must return finite numbers, for .*, but it is \["):
        dl.direct_loss(torch.randn(2, 3), torch.ones(2, 3), Broken())


def test_targets_and_epsilons_may_carry_gradients_of_their_own() -> None:
    scores, labels = torch.tensor([0.1, 0.2]), torch.tensor([1.0, 0.0], requires_grad=True)
    assert dl.direct_loss(scores, labels, "ap", epsilon=torch.tensor(0.5, requires_grad=True)).item() == 0.5


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.float16(0.5), Fraction(1, 2)])
def test_numbers_of_other_libraries(number: object) -> None:
    scores = SCORES.clone().requires_grad_()
    found = slope(scores, theorem(scores, RANKED, "ap", epsilon=number, sign=np.int64(-1)))
    assert torch.equal(found, slope(scores, theorem(scores, RANKED, "ap", epsilon=0.5, sign=-1)))
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
    gradient = slope(scores, theorem(scores, target, name, epsilon=epsilon))
    assert gradient.isfinite().all()
    assert (
        gradient.any() or name == "error"
    )  # in float32 this epsilon is 0, and nothing is within reach of the threshold


@pytest.mark.parametrize("sign", [1, -1, "both"])
@pytest.mark.parametrize("name", ["ap", "ndcg@2", "accuracy", "f1"])
def test_without_noise_the_unit_is_that_of_the_automatic_noise(name: str, sign: Any) -> None:
    """It does not follow the scores, so the gradient is that of a fixed epsilon."""
    scores = torch.randn(5, 7, generator=torch.Generator().manual_seed(3), requires_grad=True)
    target = (torch.arange(35).reshape(5, 7) % 3 == 0).long()
    if name == "accuracy":
        target = scores.argmax(-1) * torch.tensor([1, 0, 1, 0, 1])  # some rows are right
    task = dl.tasks.get(name)
    epsilon = REACH * task.defaults.noise * task.unit_epsilon(scores.detach(), target)
    fixed = slope(scores, theorem(scores, target, name, sign=sign, epsilon=epsilon))
    assert fixed.any()
    torch.testing.assert_close(slope(scores, theorem(scores, target, name, sign=sign)), fixed)


@pytest.mark.parametrize("options", [{"epsilon": "auto"}, {"epsilon": 5.0}, {"epsilon": "auto", "noise": 1}, {}])
@pytest.mark.parametrize("name", ["ap", "f1", "accuracy", "error", "graded_ndcg", "topk@2", "chain"])
def test_problems_of_a_batch_do_not_influence_each_other(name: str, options: dict[str, Any]) -> None:
    """Each loss is that of its problem alone, whatever the scale of the others, and has no gradient elsewhere."""
    scores = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    target = torch.tensor([[1, 0, 0, 1, 0]] * 4)
    if name in ("accuracy", "topk@2"):
        target = torch.tensor([0, 1, 2, 3])
    if name == "chain":
        scores, target = scores.reshape(2, 2, 5), torch.tensor([[0, 1], [2, 3]])
    draws = [torch.Generator().manual_seed(0) for _ in range(2)]
    found = []
    for factor, source in zip((1.0, 100.0), draws, strict=True):
        leaf = torch.cat((scores[:1], scores[1:] * factor)).requires_grad_()
        losses = dl.direct_loss(leaf, target, name, reduction="none", generator=source, **options)
        found.append(slope(leaf, losses[0].sum()))
    assert found[0][0].any()
    assert not found[0][1:].any()
    assert torch.equal(*found)
    if options and "noise" not in options:
        leaf = scores[:1].clone().requires_grad_()
        alone = slope(leaf, dl.direct_loss(leaf, target[:1], name, reduction="sum", **options))
        torch.testing.assert_close(alone, found[0][:1])


@pytest.mark.parametrize("spoiled", [100.0, torch.nan])
@pytest.mark.parametrize("name", ["accuracy", "chain", "ap", "f1"])
def test_a_problem_without_weight_has_no_part_in_anything(name: str, spoiled: float) -> None:
    scores = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    target = torch.randint(4, (3, 5), generator=torch.Generator().manual_seed(1))
    if name != "chain":
        scores, target = scores[:, 0], target[:, 0] if name == "accuracy" else (scores[:, 1] > 0).long()
    weight = torch.tensor([1.0, 0.0, 2.0])
    wrong = scores.clone()
    wrong[1] *= spoiled
    for sign in (-1, "both"):
        found, wanted = (
            slope(free, theorem(free, target, name, weight=weight, sign=sign))
            for free in (wrong.clone().requires_grad_(), scores.clone().requires_grad_())
        )
        torch.testing.assert_close(found, wanted)
        assert not found[1].any()
    masks = {"accuracy": torch.ones(3, dtype=torch.bool)}
    free = wrong.clone().requires_grad_()
    mask = masks.get(name, torch.ones_like(target) > 0)
    masked = theorem(free, target, name, weight=weight, mask=mask, sign="both")
    assert slope(free, masked).isfinite().all()
    if name == "accuracy":  # where mask and weight say the same
        masked = scores.clone().requires_grad_()
        found = slope(masked, theorem(masked, target, name, mask=weight > 0, weight=weight, sign="both"))
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("noise", [0, 1.0, 3.0])
def test_the_automatic_epsilon_is_a_reach_in_units_of_noise_and_task(noise: float) -> None:
    """One for each problem if the task says so, also behind a mask."""

    class Own(Pick):
        def unit_epsilon(self, scores: Tensor, target: Tensor) -> Tensor:
            return torch.tensor([0.2, 9.0, 0.5])

    scores = torch.tensor([[1.0, 0.5], [9.0, 0.0], [3.0, 2.9]], requires_grad=True)
    target, mask = torch.tensor([0, 0, 0]), torch.tensor([True, False, True])
    unit = noise or dl.Defaults().noise
    options = {"mask": mask, "noise": noise, "reduction": "sum"}
    found = []
    for epsilon in ("auto", REACH * unit * torch.tensor([0.2, 9.0, 0.5]), REACH * 0.2):
        torch.manual_seed(0)
        found.append(slope(scores, dl.direct_loss(scores, target, Own(), epsilon=epsilon, **options)))
    torch.testing.assert_close(found[0], found[1])
    assert found[0][2].any()
    assert not torch.allclose(found[0][2], found[2][2])


def test_hooks_of_a_foreign_task_are_called() -> None:
    class Own(Pick):
        def counted(self, target: Tensor) -> Tensor:
            return target != 2

        def unit_epsilon(self, scores: Tensor, target: Tensor) -> float:
            return 10.0

        def likelihood(self, scores: Tensor, target: Tensor) -> Tensor:
            return 3 * scores[:, 2]

    scores, target = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], requires_grad=True), torch.tensor([0, 2])
    with pytest.warns(dl.DirectLossWarning, match="1 of 2 problems have no loss"):
        found = slope(scores, theorem(scores, target, Own(), sign=+1))
    epsilon = REACH * dl.Defaults().noise * 10
    fixed = torch.tensor([[-1 / epsilon, 1 / epsilon, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(found, fixed)
    with pytest.warns(dl.DirectLossWarning, match="1 of 2 problems have no loss"):
        more = slope(scores, theorem(scores, target, Own(), sign=+1, likelihood=0.5))
    torch.testing.assert_close(more - found, torch.tensor([[0.0, 0.0, 1.5], [0.0, 0.0, 0.0]]))


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
    theorem(scores, target, task, epsilon=epsilon, sign=-1).backward()
    assert scores.grad is not None
    assert bool(torch.isfinite(scores.grad).all())


# ---------------------------------------------------------------------- what a user is told


@pytest.mark.parametrize("loss", [dl.direct_loss, dl.hinge_loss, dl.perceptron_loss])
@pytest.mark.parametrize("name", ["ap", "f1"])
def test_lists_of_one_item_are_refused(name: str, loss: Callable[..., Tensor]) -> None:
    scores, target = torch.tensor([[1.0], [-1.0]]), torch.tensor([[1], [0]])
    message = r"scores must have more than one item.* 2 problems of one item each\. .*squeeze\(-1\).*dim=0"
    with pytest.raises(dl.DirectLossError, match=message):
        loss(scores, target, name)
    assert torch.equal(loss(scores, target, name, dim=0), loss(scores.T[0], target.T[0], name))
    loss(scores, target, "error")  # where each score is a problem of its own


@pytest.mark.filterwarnings("ignore:.*problems have no loss")
def test_one_list_of_one_item_is_a_list() -> None:
    assert dl.direct_loss(torch.tensor([[1.0]]), torch.tensor([[1]]), "f1").item() == 0
    assert dl.direct_loss(torch.tensor([1.0]), torch.tensor([1]), "ap").item() == 0


@pytest.mark.parametrize("name", ["f1", "iou", "error"])
def test_probabilities_are_told(name: str) -> None:
    target, probabilities = torch.arange(9) % 2, torch.linspace(0.05, 0.95, 9)
    for fine in (torch.zeros(9), probabilities - 0.5, probabilities * 2, probabilities / 2, probabilities[:7]):
        dl.direct_loss(fine, target[: len(fine)], name)
    with pytest.warns(dl.DirectLossWarning, match=r"all scores lie between 0 and 1.*scores - 0\.5"):
        dl.direct_loss(probabilities, target, name)


@pytest.mark.parametrize("name", ["f1", "recall"])
def test_a_standstill_is_told(name: str) -> None:
    """Nothing is worse than no hit at all."""
    scores, target = (-torch.arange(1.0, 11.0)).requires_grad_(), (torch.arange(10) % 3 == 1).long()
    with torch.no_grad():
        theorem(scores, target, name, sign=+1)
    with pytest.warns(dl.DirectLossWarning, match=r"loss of 1 but no gradient with sign=\+1 and no noise"):
        loss = theorem(scores, target, name, sign=+1)
    assert not slope(scores, loss).any()
    for options in ({"epsilon": "auto"}, {"sign": +1, "noise": 1}, {}):  # what the message advises
        assert slope(scores, dl.direct_loss(scores, target, name, **options)).any()


def test_a_module_tells_each_thing_once() -> None:
    target = torch.zeros_like(RANKED)
    first, second = dl.DirectLoss("ap"), dl.DirectLoss("ap")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for module in (first, first, second):
            module(SCORES, target)
        assert len(caught) == 2
        for _ in range(2):
            dl.direct_loss(SCORES, target, "ap")
        assert len(caught) == 4  # Python's filters decide about functions


@pytest.mark.parametrize("huge", [1e38, 3e38])
def test_gradients_of_huge_scores_of_classes_are_finite(huge: float) -> None:
    scores = (torch.tensor([[0.9, -0.2, 1.0], [0.1, 1.0, 0.8]]) * huge).requires_grad_()
    found = slope(scores, theorem(scores, torch.tensor([0, 2]), "accuracy", sign="both"))
    assert found.isfinite().all()


@pytest.mark.parametrize("name", ["ap", "auc", "ndcg@10"])
def test_probabilities_in_a_ranking_are_pointed_out(name: str) -> None:
    """The noise and the likelihood are in logits: rankings of probabilities hardly learn."""
    logits = torch.randn(32, generator=torch.Generator().manual_seed(0))
    target = (torch.arange(32) % 4 == 0).long()
    dl.DirectLoss(name)(logits.clone().requires_grad_(), target)
    loss_fn, scores = dl.DirectLoss(name), (3 * logits).sigmoid().requires_grad_()
    with torch.no_grad():
        loss_fn(scores, target)  # their order is all that counts
    with pytest.warns(dl.DirectLossWarning, match="All scores lie between 0 and 1.*pass what sigmoid or softmax was"):
        loss_fn(scores, target)
    for quiet in (loss_fn, dl.DirectLoss(name, noise=0.1), dl.DirectLoss(name, epsilon="auto")):
        quiet(scores, target)  # warnings are errors


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["ap", "accuracy"])
def test_probabilities_are_pointed_out_at_the_first_call(name: str, training: bool, masked: bool) -> None:
    scores = (3 * torch.randn(8, 4)).softmax(-1).requires_grad_()
    target = torch.arange(8) % 4 if name == "accuracy" else torch.arange(32).reshape(8, 4) % 2
    loss_fn = dl.DirectLoss(name).train(training)
    with pytest.warns(dl.DirectLossWarning, match="All scores lie between 0 and 1"):
        loss_fn(scores, target, torch.ones_like(target, dtype=torch.bool) if masked else None)


def test_a_score_without_a_gradient_is_refused() -> None:
    class Detached(Pick):
        def score(self, scores: Tensor, output: Tensor) -> Tensor:
            return super().score(scores.detach(), output)

    scores = torch.tensor([[1.0, 0.5], [0.2, 0.0]], requires_grad=True)
    with pytest.raises(dl.DirectLossError, match=r"task\.score must be differentiable in scores"):
        dl.direct_loss(scores, torch.tensor([0, 1]), Detached())
