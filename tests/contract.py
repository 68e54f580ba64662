"""The contract of a task: what must hold for every one of them, checked against all outputs of tiny problems.

Each function here takes a task and its `Case` and raises AssertionError when the task breaks that part of the
contract. `CHECKS` lists them; test_contract.py runs every check on every registered task, and on tasks that are broken
on purpose.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import directloss as dl
from directloss._registry import as_task
from directloss.task import PaddedTask, Task
from tests.oracle import Case

EPSILONS = (0.01, 0.3, 1.0, 4.0, 30.0)
SIGNS = (+1, -1)
PROBLEMS = 12  # tiny problems drawn for each check; with ties in about half of them
FEW = 4  # for what does not depend on the problem, such as how the engine adds two gradients
TIGHT = 1e-9  # float64 sums of a few terms against the same sums in another order
LOSS = 1e-6  # a task's loss may be float32 even when the scores are float64
SINGLE = 1e-5  # the library computes in float32 or better, on values of order one
STEP = 1e-5  # step of finite differences; F is piecewise linear, so the only error is rounding

Problem = tuple[Tensor, Tensor]
Pairs = list[tuple[float, float]]


def problems(case: Case, count: int = PROBLEMS, seed: int = 0) -> Iterator[Problem]:
    """The same tiny problems in every run."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield case.draw(generator)


def has_loss(task: Task, target: Tensor) -> bool:
    """Whether the problem counts; a ranking without relevant items, for example, does not."""
    counted = task.counted(target)
    return counted is None or bool(counted.all())


def counted_problems(task: Task, case: Case, count: int = PROBLEMS) -> Iterator[Problem]:
    return ((scores, target) for scores, target in problems(case, count) if has_loss(task, target))


def same_shape(case: Case, count: int = FEW) -> tuple[list[Problem], Tensor, Tensor]:
    """Some problems of one shape, singly and stacked; draws may differ in shape, so the commonest is taken."""
    groups: dict[tuple[torch.Size, torch.Size], list[Problem]] = {}
    for scores, target in problems(case, 16 * count):
        groups.setdefault((scores.shape, target.shape), []).append((scores, target))
    chosen = max(groups.values(), key=len)[:count]
    assert len(chosen) > 1, "the case never draws the same shape twice"
    return chosen, torch.stack([s for s, _ in chosen]), torch.stack([t for _, t in chosen])


def is_tied(scores: Tensor) -> bool:
    values = torch.cat([scores.flatten(), scores.new_zeros(1)])  # zero is the threshold of sets
    return len(values.unique()) < len(values)


def pair(task: Task, scores: Tensor, target: Tensor, output: Any) -> tuple[float, float]:
    """(F, L) as the task says; a predicted output is restricted to what F looks at."""
    return float(task.score(scores, output)), float(task.loss(output, target))


def predicted_pair(task: Task, scores: Tensor, target: Tensor) -> tuple[float, float]:
    return float(task.score(scores, task.infer(scores, target))), float(task.loss(task.predict(scores), target))


def enumerated(found: tuple[float, float], pairs: Pairs, what: str) -> tuple[float, float]:
    """The oracle's exact (F, L) of what the task found; it must be there."""
    for f, l in pairs:
        if abs(found[0] - f) <= TIGHT * (1 + abs(f)) and abs(found[1] - l) <= LOSS:
            return f, l
    raise AssertionError(f"{what}: (F, L) = {found} belongs to no output; there are {sorted(set(pairs))}")


def close(found: Tensor | float, wanted: Tensor | float, tolerance: float = TIGHT) -> None:
    found, wanted = torch.as_tensor(found).double(), torch.as_tensor(wanted).double()
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def gradient_of(task: Any, scores: Tensor, target: Tensor, epsilon: float, sign: int | str, **options: Any) -> Tensor:
    """The paper's theorem."""
    leaf = scores.detach().clone().requires_grad_()
    loss = dl.direct_loss(leaf, target, task, epsilon=epsilon, sign=sign, **options)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return gradient


def each_setting() -> Iterator[tuple[float, int]]:
    return ((epsilon, sign) for epsilon in EPSILONS for sign in SIGNS)


# ---------------------------------------------------------------------------------------------- inference


def prediction_is_best(task: Task, case: Case) -> None:
    for scores, target in counted_problems(task, case):
        pairs = list(case.outputs(scores, target))
        found = enumerated(predicted_pair(task, scores, target), pairs, "predict")
        close(found[0], max(f for f, _ in pairs))


def augmented_is_best(task: Task, case: Case) -> None:
    for scores, target in counted_problems(task, case):
        pairs = list(case.outputs(scores, target))
        for epsilon, sign in each_setting():
            output = task.augmented(scores, target, epsilon, sign)
            found = enumerated(pair(task, scores, target, output), pairs, "augmented")
            best = max(f + sign * epsilon * l for f, l in pairs)
            close(found[0] + sign * epsilon * found[1], best)


def truth_has_least_loss(task: Task, case: Case) -> None:
    for scores, target in counted_problems(task, case):
        pairs = list(case.outputs(scores, target))
        found = enumerated(pair(task, scores, target, task.truth(target)), pairs, "truth")
        close(found[1], min(l for _, l in pairs))


# ---------------------------------------------------------------------------------------------- direct loss


def value_is_the_loss(task: Task, case: Case) -> None:
    for scores, target in problems(case):
        wanted = predicted_pair(task, scores, target)[1] if has_loss(task, target) else 0.0
        value = dl.direct_loss(scores, target, task)
        close(value, wanted, LOSS)
        assert float(value) >= 0, "a loss is never negative"


def gradient_is_the_theorem(task: Task, case: Case) -> None:
    """sign / epsilon * (dF(direct) - dF(predicted)), with F of the task's own methods differentiated by autograd."""
    for scores, target in problems(case):
        leaf = scores.clone().requires_grad_()
        predicted, counted = task.infer(scores, target), has_loss(task, target)
        for epsilon, sign in each_setting() if counted else [(1.0, +1)]:
            found = gradient_of(task, scores, target, epsilon, sign)
            if not counted:
                close(found, torch.zeros_like(scores))
                continue
            gap = task.score(leaf, task.augmented(scores, target, epsilon, sign)) - task.score(leaf, predicted)
            (slope,) = torch.autograd.grad(gap, leaf, allow_unused=True)
            close(found, torch.zeros_like(scores) if slope is None else sign / epsilon * slope)


def both_signs_are_the_mean(task: Task, case: Case) -> None:
    """A central difference: half of the gradient of each sign."""
    for scores, target in problems(case, FEW):
        for epsilon in EPSILONS:
            away, towards = (gradient_of(task, scores, target, epsilon, sign) for sign in SIGNS)
            close(gradient_of(task, scores, target, epsilon, "both"), (away + towards) / 2)


def gradient_is_the_ramp_slope(task: Task, case: Case) -> None:
    """The gradient is the slope of sign / epsilon * (max[F + sign epsilon L] - max F), taken from the oracle alone."""
    untied = ((s, t) for s, t in counted_problems(task, case, 40) if not is_tied(s))
    checked = 0
    for scores, target in (problem for problem, _ in zip(untied, range(3), strict=False)):
        here = list(case.outputs(scores, target))
        found = {setting: gradient_of(task, scores, target, *setting).flatten() for setting in each_setting()}
        for place in range(scores.numel()):
            step = torch.zeros(scores.numel(), dtype=scores.dtype)
            step[place] = STEP
            after = list(case.outputs(scores + step.view_as(scores), target))
            before = list(case.outputs(scores - step.view_as(scores), target))
            for epsilon, sign in each_setting():
                ahead = (ramp(after, epsilon, sign) - ramp(here, epsilon, sign)) / STEP
                behind = (ramp(here, epsilon, sign) - ramp(before, epsilon, sign)) / STEP
                if abs(ahead - behind) < 1e-4 / epsilon:  # else a kink lies within the step: no slope there
                    checked += 1
                    close(found[epsilon, sign][place] * epsilon, (ahead + behind) / 2 * epsilon, 1e-3)
    assert checked, "no problem without ties was drawn"


def ramp(pairs: Pairs, epsilon: float, sign: int) -> float:
    return sign / epsilon * (max(f + sign * epsilon * l for f, l in pairs) - max(f for f, _ in pairs))


def gradient_scales_with_grad_output(task: Task, case: Case) -> None:
    for scores, target in problems(case, FEW):
        leaf = scores.clone().requires_grad_()
        once = torch.autograd.grad(dl.direct_loss(leaf, target, task, epsilon=1.0), leaf)[0]
        scaled = torch.autograd.grad(-1024 * dl.direct_loss(leaf, target, task, epsilon=1.0), leaf)[0]
        close(scaled, -1024 * once)


def no_grad_changes_nothing(task: Task, case: Case) -> None:
    for scores, target in problems(case, FEW):
        leaf = scores.clone().requires_grad_()
        with torch.no_grad():
            without = dl.direct_loss(leaf, target, task)
        assert not without.requires_grad
        assert torch.equal(without, dl.direct_loss(leaf, target, task).detach())


# ---------------------------------------------------------------------------------------------- surrogates


def hinge_is_the_maximum(task: Task, case: Case) -> None:
    for scores, target in counted_problems(task, case):
        pairs = list(case.outputs(scores, target))
        truth, predicted_loss = (
            pair(task, scores, target, task.truth(target))[0],
            predicted_pair(task, scores, target)[1],
        )
        for epsilon in EPSILONS:
            value = float(dl.hinge_loss(scores, target, task, epsilon=epsilon))
            close(value, max(f + epsilon * l for f, l in pairs) - truth, LOSS * (1 + epsilon))
            assert value >= epsilon * predicted_loss - LOSS * (1 + epsilon), (
                "the hinge must bound epsilon times the task loss"
            )


def perceptron_is_the_shortfall(task: Task, case: Case) -> None:
    for scores, target in counted_problems(task, case):
        best = max(f for f, _ in case.outputs(scores, target))
        value = float(dl.perceptron_loss(scores, target, task))
        close(value, best - pair(task, scores, target, task.truth(target))[0])
        assert value >= -TIGHT


# ---------------------------------------------------------------------------------------------- batches and layouts


def all_losses(task: Task, scores: Tensor, target: Tensor, epsilon: Any = 1.0, **options: Any) -> tuple[Tensor, ...]:
    """The three losses, one per problem, and the direct gradient of both signs."""
    none: dict[str, Any] = {"reduction": "none", **options}
    return (
        dl.direct_loss(scores, target, task, epsilon=epsilon, **none),
        dl.hinge_loss(scores, target, task, epsilon=epsilon, **none),
        dl.perceptron_loss(scores, target, task, **none),
        gradient_of(task, scores, target, epsilon, +1, **none),
        gradient_of(task, scores, target, epsilon, -1, **none),
    )


def batch_equals_one_by_one(task: Task, case: Case) -> None:
    singles, scores, target = same_shape(case)
    epsilon = torch.linspace(0.2, 2.0, len(singles), dtype=scores.dtype)
    wanted = [all_losses(task, s, t, float(e)) for (s, t), e in zip(singles, epsilon, strict=True)]
    for found, parts in zip(all_losses(task, scores, target, epsilon), zip(*wanted, strict=True), strict=True):
        close(found, torch.stack(parts), LOSS)
    # Any number of batch dimensions, among them one of size 1.
    deep = all_losses(task, scores.unsqueeze(1), target.unsqueeze(1), epsilon.unsqueeze(1))
    for found, parts in zip(deep, zip(*wanted, strict=True), strict=True):
        close(found, torch.stack(parts).unsqueeze(1), LOSS)


def layout_does_not_matter(task: Task, case: Case) -> None:
    _, scores, target = same_shape(case)

    def scattered(tensor: Tensor) -> Tensor:
        wide = torch.stack([tensor, torch.zeros_like(tensor)], -1)
        return wide.transpose(0, -2).contiguous().transpose(0, -2)[..., 0]

    assert not scattered(scores).is_contiguous()
    wanted = all_losses(task, scores, target)
    for found, expected in zip(all_losses(task, scattered(scores), scattered(target)), wanted, strict=True):
        close(found, expected)


def low_precision_is_close(task: Task, case: Case) -> None:
    """Half precision input is computed in float32 or better: the loss is that of the rounded scores."""
    for scores, target in counted_problems(task, case):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            low = scores.to(dtype)
            exact = low.double()
            close(dl.direct_loss(low, target, task), dl.direct_loss(exact, target, task), SINGLE)
            best = task.augmented(exact, target, 1.0, +1)
            found = task.augmented(low, target, 1.0, +1)
            # Near ties may fall either way in float32; what must agree is how good the result is.
            goal = sum(pair(task, exact, target, best))
            close(sum(pair(task, exact, target, found)), goal, SINGLE)
            gradient = gradient_of(task, low, target, 1.0, +1)
            assert gradient.dtype == dtype
            assert bool(torch.isfinite(gradient).all())


def type_follows_the_scores(task: Task, case: Case) -> None:
    scores, target = next(counted_problems(task, case))
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        wanted = torch.promote_types(dtype, torch.float32)
        for loss in (dl.direct_loss, dl.hinge_loss, dl.perceptron_loss):
            leaf = scores.to(dtype).requires_grad_()
            for reduction in ("mean", "none"):
                assert loss(leaf, target, task, reduction=reduction).dtype == wanted
                with torch.no_grad():
                    assert loss(leaf, target, task, reduction=reduction).dtype == wanted


# ---------------------------------------------------------------------------------------------- masks


def mask_is_removal(task: Task, case: Case) -> None:
    _, scores, target = same_shape(case)
    if task.target_dims > 0 and not isinstance(task, PaddedTask):
        with pytest.raises(dl.DirectLossError, match="mask must be left out"):
            dl.direct_loss(scores, target, task, mask=torch.ones_like(target, dtype=torch.bool))
    elif task.target_dims == 0:
        masked_problems_are_removed(task, scores, target)
    elif task.event_dims == task.target_dims == 1:
        masked_items_are_removed(task, scores, target)


def masked_problems_are_removed(task: Task, scores: Tensor, target: Tensor) -> None:
    keep = torch.arange(len(scores)) % 2 == 0
    spoiled = torch.where(keep.reshape(-1, *[1] * task.event_dims), scores, torch.nan)
    for loss in (dl.direct_loss, dl.hinge_loss, dl.perceptron_loss):
        close(loss(spoiled, target, task, mask=keep), loss(scores[keep], target[keep], task))
    found = gradient_of(task, spoiled, target, 1.0, +1, mask=keep)
    close(found[keep], gradient_of(task, scores[keep], target[keep], 1.0, +1))
    close(found[~keep], torch.zeros_like(found[~keep]))


def masked_items_are_removed(task: Task, scores: Tensor, target: Tensor) -> None:
    count, width = scores.shape
    places = torch.tensor([0, *range(2, width + 1)])  # padding goes to the second place and to the end
    mask = torch.zeros(count, width + 2, dtype=torch.bool)
    mask[:, places] = True
    padded_scores = torch.full((count, width + 2), torch.nan, dtype=scores.dtype)
    padded_scores[:, places] = scores
    padded_target = torch.ones(count, width + 2, dtype=target.dtype)
    padded_target[:, places] = target
    found = all_losses(task, padded_scores, padded_target, mask=mask)
    for index, (with_mask, without) in enumerate(zip(found, all_losses(task, scores, target), strict=True)):
        close(with_mask[:, places] if index > 2 else with_mask, without)
        if index > 2:
            close(with_mask[~mask], torch.zeros_like(with_mask[~mask]))


# ---------------------------------------------------------------------------------------------- objects


def copies_behave_alike(task: Task, case: Case) -> None:
    scores, target = next(counted_problems(task, case))
    for module in (dl.DirectLoss(task), dl.HingeLoss(task), dl.PerceptronLoss(task)):
        other = type(module)(task)
        other.load_state_dict(module.state_dict())
        for twin in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module), other):
            assert repr(twin) == repr(module)
            assert torch.equal(twin(scores, target), module(scores, target))


def repr_is_short_and_stable(task: Task, case: Case) -> None:
    assert "object at 0x" not in repr(task), "repr must not show an address: records and error messages carry it"


CHECKS: dict[str, Callable[[Task, Case], None]] = {
    check.__name__: check
    for check in (
        prediction_is_best,
        augmented_is_best,
        truth_has_least_loss,
        value_is_the_loss,
        gradient_is_the_theorem,
        both_signs_are_the_mean,
        gradient_is_the_ramp_slope,
        gradient_scales_with_grad_output,
        no_grad_changes_nothing,
        hinge_is_the_maximum,
        perceptron_is_the_shortfall,
        batch_equals_one_by_one,
        layout_does_not_matter,
        low_precision_is_close,
        type_follows_the_scores,
        mask_is_removal,
        copies_behave_alike,
        repr_is_short_and_stable,
    )
}


def make_task(name: str, case: Case) -> Task:
    """The task of a case."""
    return as_task(case.make() if case.make is not None else name)
