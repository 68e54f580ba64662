"""What a task is: the five methods that the theorem needs, and the hooks that make a task pleasant or fast.

Shapes in docstrings: ``b`` for any leading batch dimensions (one problem each), ``n`` for items, ``c`` for classes.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from directloss._checks import check_finite, check_tensor, fail, near

Output = Any
"""Whatever a task predicts: a tensor, a tuple of tensors, an object of the task's own."""


class Solved(NamedTuple):
    """What the engine needs of one batch of problems, when a task computes it in one go."""

    loss: Tensor
    """Task loss L(y, y_w) of each problem, shape ``b``."""
    gradient: Tensor | None
    """``sign / epsilon * (dF(y_direct) - dF(y_w))`` in the shape of the scores, float32 or better."""
    counted: Tensor | None = None
    """As `Task.counted`."""


class Task(ABC):
    """A prediction problem and the loss it is judged by.

    Write five methods and every loss of the library works with it: `direct_loss`, `hinge_loss`, `perceptron_loss`.
    All of them take whole batches: the leading dimensions of ``scores`` are independent problems. A class that has the
    five methods need not inherit from this one.
    """

    event_dims: int = 1
    """How many trailing dimensions of ``scores`` make up one problem."""
    target_dims: int = 1
    """How many trailing dimensions of ``target`` make up one problem."""
    shape_words: str = "(..., n)"
    """The shape of ``scores``, as error messages say it."""
    maskable: bool = False
    """Whether the task knows padding inside a problem, which reaches it as the label -1. Otherwise such a mask is
    refused. A mask over whole problems (``target_dims`` 0) never reaches the task."""
    padding_label: bool = False
    """Whether a label -1 of the user's own means padding too, as ``mask`` does; `check` then sees it."""
    advised_sign: int | str = +1
    """The ``sign`` that learns best as far as we know: what estimators and the command line take by themselves."""
    no_item_weights: str = "the task says nothing of items that count more than others"
    """Why the items of one problem cannot have weights, as the error message says it; see `weighted`."""

    @abstractmethod
    def predict(self, scores: Tensor) -> Output:
        """Inference, Eq. (3) left: the output with the highest score F."""

    @abstractmethod
    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Output:
        """Loss-augmented inference, Eq. (3) right: the output with the highest ``F + sign * epsilon * L``."""

    @abstractmethod
    def truth(self, target: Tensor) -> Output:
        """The output that the target asks for. Only the hinge and the perceptron need it."""

    @abstractmethod
    def loss(self, output: Output, target: Tensor) -> Tensor:
        """Task loss L of an output, shape ``b``."""

    @abstractmethod
    def score(self, scores: Tensor, output: Output) -> Tensor:
        """The scoring function F of an output, shape ``b``; differentiable in ``scores``."""

    # ------------------------------------------------------------------ hooks, all optional

    def infer(self, scores: Tensor, target: Tensor) -> Output:
        """`predict` in the form that `augmented` returns, for tasks whose F has to know something of the target:
        which items are padding, or, for a ranking, between which items it counts pairs. The rest of the target may
        not be used.
        """
        return self.predict(scores)

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        """Raise `DirectLossError` when ``scores`` and ``target`` do not fit together."""
        check_tensor("target", target)
        if check_values:
            check_finite(scores)

    def counted(self, target: Tensor) -> Tensor | None:
        """Which problems have a loss at all, shape ``b``, or None when all have. The others count zero, and not in the
        mean.
        """
        return None

    def value(self, losses: Tensor, target: Tensor) -> Tensor:
        """The metric of problems with these losses, shape ``b``: one minus the loss, unless its best value is not 1."""
        return 1 - losses

    def weighted(self, weight: Tensor) -> Task | None:
        """This task for items with these weights, in the shape of the target (float64, finite, not negative, 0 for
        padding); or None if it has no exact inference for them.
        """
        return None

    def auto_epsilon(self, scores: Tensor, target: Tensor) -> float | Tensor:
        """``epsilon="auto"``: the standard deviation of the scores, so that it follows their scale.

        It is taken over all problems of the call, each centred, because only differences inside a problem matter.
        """
        values = scores.detach().to(torch.promote_types(scores.dtype, torch.float32))
        inside = tuple(range(-self.event_dims, 0))
        power = _excess(values.abs().amax())
        values = torch.ldexp(values, -power)
        centred = values - values.mean(inside, keepdim=True) if inside else values
        return _or_one(torch.ldexp(torch.std(centred.flatten(), correction=0), power))

    def steadied(self, gradient: Tensor, scores: Tensor) -> Tensor:
        """What is left of the gradient with ``sign="both"`` and the automatic epsilon; see `without_growth`."""
        return gradient

    def fused(
        self,
        scores: Tensor,
        target: Tensor,
        epsilon: float | Tensor | None,
        sign: int,
        *,
        gradient: bool,
        check_values: bool,
    ) -> Solved | None:
        """Checks, loss and gradient in one go, for tasks that can do it faster than through the five methods; else
        None. An epsilon of None asks for the automatic one.
        """
        return None


def spread(scores: Tensor, valid: Tensor | None = None) -> Tensor:
    """Standard deviation over the last dimension, in float32 or better; 1 where all scores are equal.

    Equal scores have no scale that epsilon could follow. A ranking of them has the same augmented output for every
    epsilon; where scores are compared with 0, as in ``"error"``, the 1 is a convention and no more.
    """
    values = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if valid is not None:
        values = values * valid
    power = _excess(values.abs().amax(-1, keepdim=True))
    values = torch.ldexp(values, -power)
    if valid is None:
        deviation = torch.std(values, dim=-1, correction=0)
    else:
        count = valid.sum(-1).clamp(min=1)
        centred = (values - values.sum(-1, keepdim=True) / count.unsqueeze(-1)) * valid
        deviation = (centred.square().sum(-1) / count).sqrt()
    return _or_one(torch.ldexp(deviation, power.squeeze(-1)))


def without_growth(gradient: Tensor, scores: Tensor, over: tuple[int, ...] | None = None, free: float = 1.0) -> Tensor:
    """A gradient without the part that makes all scores larger, or all smaller, and changes no decision.

    An epsilon that follows the scores does not resist such a change, so it would go on for ever and hide the rest. With
    one direction to go, there is nothing else, and it stays; with many, all of it is taken out. Scores of 0, as padding
    has, take no part.

    Args:
        gradient: of a loss that does not change when all scores are multiplied by a positive number.
        scores: what they are multiplied from, in the shape of the gradient.
        over: the dimensions of scores that change together; all by default.
        free: in how many directions each score can move; less than one where only differences of scores matter.
    """
    wide = scores.double()
    wide = wide / wide.abs().amax().clamp(min=torch.finfo(torch.float64).tiny)  # whose squares do not overflow
    dims = tuple(range(wide.dim())) if over is None else over
    square = wide.square().sum(dims, keepdim=True)
    along = (gradient.double() * wide).sum(dims, keepdim=True) / torch.where(square > 0, square, 1.0)
    directions = ((wide != 0).sum(dims, keepdim=True) * free).clamp(min=1)
    return (gradient.double() - (1 - 1 / directions) * along * wide).to(gradient.dtype)


def _excess(largest: Tensor) -> Tensor:
    """By which power of two numbers have to shrink so that their squares do not overflow; 0 for most."""
    return (torch.frexp(largest).exponent - 30).clamp(min=0)


def _or_one(deviation: Tensor) -> Tensor:
    # Below this floor 1 / epsilon would overflow the gradient's type.
    return torch.where(deviation > torch.finfo(deviation.dtype).tiny ** 0.5, deviation, torch.ones_like(deviation))


class ForeignTask(Task):
    """A user's object with the five methods of `Task`, and with those of its hooks that it has."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        for name in (*SETTINGS, *HOOKS):
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    def predict(self, scores: Tensor) -> Output:
        return self.inner.predict(scores)

    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Output:
        return self.inner.augmented(scores, target, epsilon, sign)

    def truth(self, target: Tensor) -> Output:
        return self.inner.truth(target)

    def loss(self, output: Output, target: Tensor) -> Tensor:
        loss: Tensor = self.inner.loss(output, target)
        return loss

    def score(self, scores: Tensor, output: Output) -> Tensor:
        score: Tensor = self.inner.score(scores, output)
        return score

    def __repr__(self) -> str:
        return repr(self.inner)


METHODS = ("predict", "augmented", "truth", "loss", "score")
SETTINGS = (
    "event_dims", "target_dims", "shape_words", "maskable", "padding_label", "advised_sign", "no_item_weights",
)  # fmt: skip
HOOKS = ("infer", "check", "counted", "value", "weighted", "auto_epsilon", "steadied", "fused")
Factory = Callable[..., Task]


class Measured(NamedTuple):
    """The function of scores and target that a task is judged by, and what a number after an @ means to it."""

    metric: Callable[..., Any]
    number: str = ""
    """The argument that the number is; empty where there may be none."""
    event_dims: int = 1
    """Last dimensions of the scores that the function takes at once."""
    other: Callable[..., Any] | None = None
    """The function to take with a number, where it is another one."""


class Entry(NamedTuple):
    """What the registry knows of a name."""

    factory: Factory
    summary: str
    measured: Measured | None


_entries: dict[str, Entry] = {}
_meant: dict[str, str] = {}


def register(
    name: str, factory: Factory, summary: str, also: Iterable[str] = (), measured: Measured | None = None
) -> None:
    """Give a task a name. ``"name@x"`` calls ``factory(x)``, plain ``"name"`` calls ``factory()``.

    ``also`` are words that users may try instead; they are told the name. With ``measured``, `UniLoss` knows the
    name as well.
    """
    if not re.fullmatch(r"[a-z0-9_]+", str(name)) or str(name) != name:
        fail("name", "must be made of small letters, digits and _", repr(name))
    if not callable(factory):
        fail("factory", "must be a class, or a function that returns a task", f"a {type(factory).__name__}")
    if name in _entries and _origin(_entries[name].factory) != _origin(factory):
        known = ".".join(_origin(_entries[name].factory))
        fail("name", "must not be taken", f"{name!r}, which is {known}", "Choose another name.")
    _entries[name] = Entry(factory, summary, measured)
    _meant.update(dict.fromkeys((name, *also), name))


def _origin(factory: Factory) -> tuple[str, str]:
    """Where a factory was written: the same for a class that a notebook defines again."""
    return getattr(factory, "__module__", ""), getattr(factory, "__qualname__", repr(factory))


def names() -> list[str]:
    """Every registered name, in alphabetical order."""
    return sorted(_entries)


def summaries() -> dict[str, str]:
    """Each registered name with one line that says what it is."""
    return {name: _entries[name].summary for name in names()}


def measured() -> dict[str, Measured]:
    """The names whose metric is a function of scores and target, with that function."""
    return {name: entry.measured for name, entry in _entries.items() if entry.measured is not None}


def split_name(argument: str, name: str) -> tuple[str, int | float | None]:
    """``"ndcg@10"`` as ``("ndcg", 10)``, ``"ndcg"`` as ``("ndcg", None)``."""
    base, at, number = name.strip().lower().partition("@")
    if at and not re.fullmatch(r"\d+(\.\d+)?", number):
        fail(argument, "must have a number after '@'", repr(name), f"For example {base + '@10'!r}.")
    return base, None if not at else float(number) if "." in number else int(number)


def get(name: str, argument: str = "task") -> Task:
    """The task of a name such as ``"ap"``, ``"ndcg@10"`` or ``"fbeta@2"``; ``argument`` is what errors call it."""
    base = name.strip().lower().partition("@")[0]
    if base not in _entries:
        fail(
            argument,
            "must be a known name, or a task object",
            repr(name),
            near(base.replace(" ", "_").replace("-", "_"), _meant) or f"Known: {', '.join(names())}.",
        )
    _, number = split_name(argument, name)
    factory = _entries[base].factory
    if number is None:
        return as_task(factory())
    try:
        inspect.signature(factory).bind(number)
    except TypeError:
        fail(argument, f"takes no number: {base!r} stands alone", repr(name))
    return as_task(factory(number))


def as_task(task: object, argument: str = "task") -> Task:
    """A task from a name, a `Task`, or any object that has the five methods."""
    if isinstance(task, Task):
        return task
    if isinstance(task, str):
        return get(task, argument)
    missing = [method for method in METHODS if not callable(getattr(task, method, None))]
    if missing or isinstance(task, type):
        what = f"the class {task.__name__}" if isinstance(task, type) else f"a {type(task).__name__}"
        hint = "Make an object of it first." if isinstance(task, type) else f"It lacks {', '.join(missing)}."
        if callable(task) and not isinstance(task, type) and len(missing) == len(METHODS):
            hint += " If it is a metric, a function of scores and target, use directloss.UniLoss."
        fail(argument, "must be a name or an object with the methods " + ", ".join(METHODS), what, hint)
    return ForeignTask(task)
