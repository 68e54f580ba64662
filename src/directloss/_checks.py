"""Argument checks.

Every message names the argument, the rule it breaks, its value, and what to do about it. Checks of shapes and dtypes
are free and always run. Checks of values (finite scores, labels 0 or 1) read the data, which synchronises with a GPU;
``check_values=False`` skips them.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from directloss._errors import DirectLossError as DirectLossError
from directloss._errors import DirectLossWarning as DirectLossWarning
from directloss._errors import fail as fail
from directloss._errors import near as near

REDUCTIONS = ("mean", "sum", "none")

HEAVIEST = 1e30
"""Sums of millions of such weights, and products of two, are still finite in the dtypes that hold them."""


UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Dtypes that most operations lack."""
NO_FLOAT64 = {"mps"}
"""Device types without float64."""


def precise(tensor: Tensor, device: torch.device | None = None) -> Tensor:
    """A tensor in float64, or float32 on devices without it; moved to ``device`` if given."""
    device = tensor.device if device is None else device
    return tensor.to(device=device, dtype=torch.float32 if device.type in NO_FLOAT64 else torch.float64)


def check_scores(scores: object, event_dims: int, shape_words: str, argument: str = "scores") -> Tensor:
    """A non-empty real floating-point tensor with at least ``event_dims`` dimensions."""
    scores = check_tensor(argument, scores)
    if not scores.is_floating_point():
        fail(argument, "must be floating point", scores.dtype, f"Call {argument}.float() first.")
    if scores.dim() < event_dims:
        fail(argument, f"must have shape {shape_words}", f"of shape {tuple(scores.shape)}")
    if scores.numel() == 0:
        fail(argument, "must not be empty", f"of shape {tuple(scores.shape)}")
    return scores


def check_finite(scores: Tensor, argument: str = "scores") -> None:
    """No NaN and no infinity: such scores cannot be ranked."""
    finite = torch.isfinite(scores)
    if not bool(finite.all()):
        first = (~finite).nonzero()[0].tolist()
        value = scores[tuple(first)].item()
        fail(
            argument,
            "must be finite",
            f"{value} at index {first} ({int((~finite).sum())} of {scores.numel()} values are NaN or infinite)",
            "Lower the learning rate, or look for a division by zero in the model." if argument == "scores" else "",
        )


def check_same_shape(target: object, scores: Tensor) -> Tensor:
    """One label per score."""
    target = check_tensor("target", target)
    if target.shape != scores.shape:
        rule = f"must have the shape of scores, {tuple(scores.shape)}"
        fail("target", rule, f"of shape {tuple(target.shape)}", hint_of_classes(target, scores))
    return target


def hint_of_classes(target: Tensor, scores: Tensor) -> str:
    """A hint at the right loss, if the target has one class per sample or pixel."""
    by_class = scores.dim() > 1 and target.shape == scores.shape[:1] + scores.shape[2:]
    return "Scores (n, c, ...) with a target (n, ...) are for dl.AveragedLoss." if by_class else ""


def check_tensor(argument: str, value: object) -> Tensor:
    """A tensor, not a list or an array."""
    if not isinstance(value, Tensor):
        fail(argument, "must be a torch.Tensor", f"a {type(value).__name__}", "Convert it with torch.as_tensor.")
    return value


def check_labels(target: Tensor, allowed: Sequence[float] = (0, 1), hint: str = "", argument: str = "target") -> None:
    """Every label is one of ``allowed``, which are distinct."""
    if target.dtype == torch.bool:
        return
    if target.device.type == "cpu" and target.dtype != torch.bfloat16:  # numpy is faster, but lacks that dtype
        labels = target.detach().numpy()
        if sum(np.count_nonzero(labels == label) for label in allowed) == labels.size:
            return
    good = torch.stack([target == label for label in allowed]).any(0)
    if not bool(good.all()):
        value = target[~good][0].item()
        words = " or ".join(str(label) for label in allowed)
        hint = _hint_of_ignored(value) or hint
        fail(argument, f"must hold only {words}", f"{value} at index {(~good).nonzero()[0].tolist()}", hint)


def check_classes(target: Tensor, classes: int) -> None:
    """Class indices from 0 to ``classes`` - 1."""
    if target.dtype == torch.bool or target.is_floating_point() or target.is_complex():
        fail("target", "must hold integer class indices", target.dtype, "Call target.long() first.")
    bad = (target < 0) | (target >= classes)
    if bool(bad.any()):
        value, rule = target[bad][0].item(), f"must hold class indices from 0 to {classes - 1}"
        hint = 'For one logit per row, squeeze(-1) the scores and use "error".' if classes == 1 else ""
        fail("target", rule, f"{value} at {bad.nonzero()[0].tolist()}", _hint_of_ignored(value, -1) or hint)


def check_no_column(scores: object, target: object) -> None:
    """Refuse scores ``(n, 1)`` with a target ``(n,)``, which a function would compare each with each."""
    if not isinstance(scores, Tensor) or not isinstance(target, Tensor):
        return  # refused elsewhere
    if scores.shape == (*target.shape, 1) and target.dim():
        rule = f"must have the shape of target, {tuple(target.shape)}"
        fail("scores", rule, f"of shape {tuple(scores.shape)}", "Call scores.squeeze(-1) first.")


def _hint_of_ignored(value: float, *also: float) -> str:
    """What to do with a label that other losses ignore."""
    return f"Leave such labels out with mask=target != {value:g}." if value in (-100, 255, *also) else ""


def check_mask(mask: object, shape: torch.Size, what: str, argument: str = "mask") -> Tensor:
    """A boolean mask, True for real entries and False for padding."""
    mask = check_tensor(argument, mask)
    if mask.dtype != torch.bool:
        fail(argument, "must be boolean (False = ignored)", mask.dtype, f"Call {argument}.bool() first.")
    if mask.shape != shape:
        fail(argument, f"must have the shape of {what}, {tuple(shape)}", f"of shape {tuple(mask.shape)}")
    return mask


def blank(scores: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and labels with padding set to zero, so that its content, NaN included, is not checked and does not leak
    into a gradient.
    """
    shown = mask.reshape(mask.shape + (1,) * (scores.dim() - mask.dim()))
    return torch.where(shown, scores, 0.0), torch.where(mask, target, torch.zeros_like(target))


def check_weight(weight: object, shape: torch.Size, what: str, check_values: bool = True) -> Tensor:
    """Finite, non-negative weights, one per problem or per item."""
    weight = check_tensor("weight", weight)
    if weight.shape != shape:
        fail("weight", f"must hold one weight per {what}, shape {tuple(shape)}", f"of shape {tuple(weight.shape)}")
    if check_values and not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        fail("weight", "must be finite and not negative", f"as low as {weight.min().item()}")
    if check_values and (most := float(weight.max())) and not 1 / HEAVIEST <= most <= HEAVIEST:
        rule = f"must be 0 or between {1 / HEAVIEST:g} and {HEAVIEST:g} at its largest"
        fail("weight", rule, f"{most:g}", "Divide by weight.max().")
    return weight


def check_generator(generator: object) -> torch.Generator | None:
    """A random generator; None for the global one."""
    if generator is not None and not isinstance(generator, torch.Generator):
        fail("generator", "must be a torch.Generator", f"a {type(generator).__name__}")
    return generator


def check_epsilon(epsilon: object, shape: torch.Size | None = None, check_values: bool = True) -> float | Tensor | None:
    """A positive finite number, or a tensor of them that broadcasts to ``shape``; None for "auto"."""
    if isinstance(epsilon, str):
        if epsilon != "auto":
            fail("epsilon", 'must be a positive number or "auto"', repr(epsilon))
        return None
    if isinstance(epsilon, Tensor):
        epsilon = epsilon.detach()
        if not epsilon.is_floating_point():
            fail("epsilon", "must be a number or a floating-point tensor", f"a tensor of {epsilon.dtype}")
        if check_values and not bool((torch.isfinite(epsilon) & (epsilon > 0)).all()):
            fail("epsilon", "must be positive and finite", epsilon)
        if shape is None:
            return epsilon
        try:
            return epsilon.expand(shape)
        except RuntimeError:
            fail("epsilon", f"must be a number or broadcast to {tuple(shape)}", f"of shape {tuple(epsilon.shape)}")
    return check_positive("epsilon", epsilon, "Pass 'auto' for a multiple of the task's unit.")


def check_positive(argument: str, value: object, hint: str = "") -> float:
    """A positive finite number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        fail(argument, "must be a positive number", repr(value), hint)
    if not 0 < float(value) < math.inf:
        fail(argument, "must be positive and finite", value, hint)
    return float(value)


def check_not_negative(argument: str, value: object) -> float:
    """A finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        fail(argument, "must be a finite number of at least 0", repr(value))
    return float(value)


def check_flips(flips: object, argument: str = "flips") -> tuple[float, float]:
    """Shares of wrong labels among the negatives and among the positives; one number stands for both."""
    shares = tuple(flips) if isinstance(flips, tuple | list) else (flips, flips)
    rule = "must be a share of wrong labels in [0, 0.5), or one for the negatives and one for the positives"
    if len(shares) != 2 or any(isinstance(one, bool) or not isinstance(one, Real) for one in shares):
        fail(argument, rule, repr(flips))
    low, high = (float(one) for one in shares)
    if not (low >= 0 and high >= 0 and low + high < 1) or (not isinstance(flips, tuple | list) and low >= 0.5):
        percent = 1 <= max(low, high) < 100
        meant = " and ".join(f"{one / 100:g}" for one in dict.fromkeys((low, high)))
        hint = (
            f"It is a share: did you mean {meant}?"
            if percent
            else "With half of the labels wrong, nothing can be learned."
        )
        fail(argument, rule, repr(flips), hint)
    return low, high


def check_number(result: object) -> Tensor:
    """What a metric returned as one real number: a float64 scalar without gradient."""
    if isinstance(result, Real):
        return torch.tensor(float(result), dtype=torch.float64)
    if not isinstance(result, Tensor | np.ndarray):
        fail("metric", "must return one number", f"a {type(result).__name__}", "Pick the number with a lambda.")
    value = torch.as_tensor(result)
    if value.numel() != 1:
        hint = "Reduce it, for example with .mean()."
        fail("metric", "must return one number", f"a tensor of shape {tuple(value.shape)}", hint)
    if value.is_complex():
        fail("metric", "must return a real number", value.dtype)
    return value.detach().reshape(()).double()


def value_of(metric: Callable[..., Any], scores: Tensor, target: Tensor) -> Tensor:
    """The number that a metric returns for copies of its arguments, float64; failures become `DirectLossError`."""
    try:
        result = metric(scores.clone(), target.clone())
    except DirectLossError:
        raise
    except Exception as error:
        raise DirectLossError(
            f"metric must accept scores of shape {tuple(scores.shape)} and target of shape {tuple(target.shape)}, "
            f"but {name_of(metric)} raised {type(error).__name__}: {error}. Functions of scikit-learn take the target "
            "first: write lambda scores, target: metric(target, scores)."
        ) from error
    return check_number(result)


def name_of(value: Any) -> str:
    """A stable name for a function or setting, without addresses."""
    if not callable(value):
        return repr(value)
    inner = getattr(value, "func", value)  # of a partial
    return str(getattr(inner, "__name__", type(inner).__name__))


def check_count(argument: str, value: object, least: int = 1) -> int:
    """A whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        fail(argument, f"must be a whole number of at least {least}", repr(value))
    return int(value)


def check_sign(sign: object, advised: int | str = "both") -> tuple[int, ...]:
    """The signs to average over, from +1 (away from worse), -1 (towards better), "both", or "auto" for ``advised``."""
    if isinstance(sign, str) and sign == "auto":
        sign = advised
    if isinstance(sign, str) and sign == "both":
        return (+1, -1)
    if isinstance(sign, bool) or not isinstance(sign, Real) or sign not in (1, -1):
        fail("sign", 'must be +1 (away from worse), -1 (towards better), "both" or "auto"', repr(sign))
    return (+1,) if sign == 1 else (-1,)


def check_choice(argument: str, value: Any, choices: Iterable[str]) -> Any:
    """One of several words; the error suggests the closest one."""
    choices = list(choices)
    if value not in choices:
        fail(
            argument,
            "must be one of " + ", ".join(repr(choice) for choice in choices),
            repr(value),
            near(value, choices),
        )
    return value


_told: ContextVar[set[str] | None] = ContextVar("told", default=None)
_NOT_THE_USERS = tuple(str(Path(file).parent) + os.sep for file in (__file__, torch.__file__))


class remembering:
    """A context in which `warn_once` repeats nothing in ``told``; each loss module has its own set."""

    def __init__(self, told: set[str]) -> None:
        self.told = told

    def __enter__(self) -> None:
        self.before = _told.set(self.told)

    def __exit__(self, *_: object) -> None:
        _told.reset(self.before)


def warn_once(key: str, message: str) -> None:
    """Warn once per loss module. Plain functions warn every time; Python's filters then show it once per line."""
    told = _told.get()
    if told is not None:
        if key in told:
            return
        told.add(key)
    warnings.warn(message, DirectLossWarning, stacklevel=_users_level())


def _users_level() -> int:
    """The stack level of the user's call: the first frame outside this library and PyTorch."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        level, frame = level + 1, frame.f_back
    return level


FEW = 8
"""Fewer logits than this may all lie between 0 and 1 by chance."""
SPREAD = 0.8
"""The logits of a fresh network may all lie between 0 and 1, too, but they are closer to each other than this."""


def warn_of_probabilities(scores: object, what: str, message: str) -> None:
    """Warn once about ``what`` if scores look like probabilities."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        return  # refused elsewhere
    if scores.numel() < FEW:
        return
    fixed = scores.detach()
    while fixed.dim() > 1:
        fixed = fixed[0]
    if float(fixed.min()) < 0:  # nearly always the first list settles it
        return
    low, high = torch.aminmax(scores.detach())
    if bool((low >= 0) & (high <= 1) & (high - low > SPREAD)):
        warn_once(f"probabilities as {what}", message)
