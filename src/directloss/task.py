"""The task protocol: five methods, one record of defaults, and two calls that make the engine faster.

Shapes in docstrings: ``b`` for any leading batch dimensions (one problem each), ``n`` for items, ``c`` for classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

from torch import Tensor

from directloss._checks import check_finite, check_tensor, fail
from directloss.noise import Noise

Output = Any
"""What a task predicts: a tensor, a tuple of tensors, or any object."""
Mask: TypeAlias = Tensor | None
"""True for real items and False for padding, in the shape of the target; None if all are real. Scores and labels of
padding are 0."""


class Estimate(NamedTuple):
    """A request for the expected loss of a task; see `Moves`."""

    noise: Noise
    gradient: bool = True
    """Whether gradients are needed, or only the loss."""
    likelihood: bool = False
    """Whether that of the likelihood is needed, too."""
    weight: Tensor | None = None
    """The weights of items, in the shape of the target (float64, finite, not negative, 0 for padding)."""
    flips: tuple[float, float] = (0.0, 0.0)
    """The share of the negatives that are labelled positive, and of the positives labelled negative."""
    mask: Mask = None
    check_values: bool = False
    """Whether scores and labels still need to be checked."""
    curvature: bool = False
    """Whether a ranking returns its curvature, too."""

    def refuse_weight(self, task: Task) -> None:
        """Raise if items have weights."""
        if self.weight is not None:
            hint = f"{task.defaults.no_item_weights}.".capitalize()
            fail("weight", "must hold one weight per problem", "one per item", hint)


class Expected(NamedTuple):
    """The loss of a batch, and the gradient of its expectation under noise."""

    loss: Tensor
    """Task loss of the scores without noise, shape ``b``."""
    slope: Tensor | None = None
    """The gradient of the expected loss, in the shape of the scores; float32 or wider."""
    likelihood: Tensor | None = None
    """The gradient of the negative log-likelihood, in the shape of the scores."""
    counted: Tensor | None = None
    """As `Task.counted`."""
    curvature: Tensor | None = None
    """The second difference of the loss of a ranking, in the shape of the scores (`directloss.moves.Moved`)."""


class Solve(NamedTuple):
    """A request to a task that computes losses and the gradients of Theorem 1 together."""

    epsilon: float | Tensor
    """A number, or one per problem, shape ``b``."""
    signs: tuple[int, ...]
    """+1, -1, or both: the gradient is the mean."""
    gradient: bool
    """Whether to compute the gradient, or only the losses."""
    noisy: Tensor | None = None
    """Perturbed scores ``(draws, *scores.shape)`` to average the gradient over; None for the scores themselves."""
    mask: Mask = None
    check_values: bool = False
    """Whether scores and labels still need to be checked."""


class Solved(NamedTuple):
    """Loss and gradient of a batch of problems, from a task that computes them together."""

    loss: Tensor
    """Task loss L(y, y_w) of each problem, shape ``b``."""
    gradient: Tensor | None
    """``sign / epsilon * (dF(y_direct) - dF(y_w))``, averaged over signs and draws, in the shape of the scores; float32
    or wider."""
    counted: Tensor | None = None
    """As `Task.counted`."""


@dataclass(frozen=True)
class Defaults:
    """What the losses assume of a task unless the user says otherwise."""

    noise: float = 1.0
    """The meaning of ``noise="auto"``, in logits."""
    likelihood: float = 1.0
    """The meaning of ``likelihood="auto"``."""
    sign: int | str = "both"
    """The meaning of ``sign="auto"``: +1 where moving away from worse outputs is enough, otherwise ``"both"``."""
    density: str = "gumbel"
    """The distribution of the noise, see `directloss.noise`: ``"uniform"`` for rankings, ``"logistic"`` where each
    score is compared with 0, otherwise ``"gumbel"``."""
    graphs: bool = True
    """Whether a graph can hold `Moves.expected`."""
    no_flips: str = "there is no exact correction of this metric for wrong labels"
    """Why ``flips`` are refused, for the error message; empty if they are not."""
    no_item_weights: str = "the task does not define items that count more than others"
    """Why the items of a problem cannot have weights, for the error message."""


class Moves(Protocol):
    """A task with the exact gradient of its expected loss (`directloss.moves`)."""

    def expected(self, scores: Tensor, target: Tensor, request: Estimate) -> Expected:
        """Checks, losses, and the gradients that the request asks for."""


class Fused(Protocol):
    """A task that computes Theorem 1 faster in one call than through its five methods."""

    def fused(self, scores: Tensor, target: Tensor, request: Solve) -> Solved:
        """Checks, losses, and the gradient if the request asks for it."""


class Task(ABC):
    """A prediction problem and the loss that judges it.

    The five abstract methods are all that `direct_loss`, `hinge_loss` and `perceptron_loss` need. All methods take
    batches: the leading dimensions of ``scores`` are independent problems, and the draws of `direct_loss` are one more
    leading dimension. A class with these methods does not have to inherit from this one. A task that also has
    `Moves.expected` or `Fused.fused` is asked through them first.
    """

    defaults: Defaults = Defaults()
    event_dims: int = 1
    """How many trailing dimensions of ``scores`` make up one problem."""
    target_dims: int = 1
    """How many trailing dimensions of ``target`` make up one problem."""
    shape_words: str = "(..., n)"
    """The shape of ``scores`` in error messages."""

    @abstractmethod
    def predict(self, scores: Tensor) -> Output:
        """Inference, Eq. (3) left: the output with the highest score F."""

    @abstractmethod
    def augmented(self, scores: Tensor, target: Tensor, epsilon: float | Tensor, sign: int) -> Output:
        """Loss-augmented inference, Eq. (3) right: the output with the highest ``F + sign * epsilon * L``."""

    @abstractmethod
    def truth(self, target: Tensor) -> Output:
        """The correct output. Only hinge and perceptron need it."""

    @abstractmethod
    def loss(self, output: Output, target: Tensor) -> Tensor:
        """Task loss L of an output, shape ``b``."""

    @abstractmethod
    def score(self, scores: Tensor, output: Output) -> Tensor:
        """The scoring function F of an output, shape ``b``; differentiable in ``scores``."""

    # ------------------------------------------------------------------ hooks, all optional

    def fitted(self, scores: Tensor, target: Tensor) -> Task:
        """The task for scores and target of these shapes."""
        return self

    def infer(self, scores: Tensor, target: Tensor) -> Output:
        """`predict` in the form that `augmented` returns, for tasks whose F depends on part of the target: which items
        are padding or, for a ranking, which pairs of items F counts. It must not use the rest of the target.
        """
        return self.predict(scores)

    def check(self, scores: Tensor, target: Tensor, check_values: bool) -> None:
        """Raise `DirectLossError` if ``scores`` and ``target`` do not match."""
        check_tensor("target", target)
        if check_values:
            check_finite(scores)

    def counted(self, target: Tensor) -> Tensor | None:
        """Which problems have a loss, shape ``b``, or None if all do. The others have loss 0 and are left out of
        the mean.
        """
        return None

    def value(self, losses: Tensor, target: Tensor) -> Tensor:
        """The metric of problems with these losses, shape ``b``: one minus the loss, unless the best value is not 1."""
        return 1 - losses

    def unit_epsilon(self, scores: Tensor, target: Tensor) -> float | Tensor:
        """The epsilon for which the largest change of the loss by a single change of the output (one exchange, one
        flipped decision) outweighs a difference of 1 in the scores; a number, or one per problem, shape ``b``. It must
        not use the values of the scores.
        """
        return 1.0

    def noise_scale(self, scores: Tensor) -> Tensor | None:
        """The scale of the automatic noise for each problem, shape ``b``, where scores have a unit of their own (costs,
        values); None where they are logits.
        """
        return None

    def likelihood(self, scores: Tensor, target: Tensor) -> Tensor | None:
        """The negative log-likelihood of the target, shape ``b``, differentiable; None if the task has none. Tasks with
        `Moves.expected` return its gradient there.
        """
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PaddedTask(Task):
    """A task whose problems may have padding: all its methods with a target, except `check`, also take the mask.

    It is only passed if there is one. Of other tasks only whole problems can be masked, which they never see.
    """

    def infer(self, scores: Tensor, target: Tensor, mask: Mask = None) -> Output:
        return self.predict(scores)

    def counted(self, target: Tensor, mask: Mask = None) -> Tensor | None:
        """Problems with at least one real item."""
        return None if mask is None else mask.any(-1)

    def value(self, losses: Tensor, target: Tensor, mask: Mask = None) -> Tensor:
        return super().value(losses, target)

    def unit_epsilon(self, scores: Tensor, target: Tensor, mask: Mask = None) -> float | Tensor:
        return super().unit_epsilon(scores, target)

    def likelihood(self, scores: Tensor, target: Tensor, mask: Mask = None) -> Tensor | None:
        return super().likelihood(scores, target)


METHODS = ("predict", "augmented", "truth", "loss", "score")
OPTIONAL = [
    *(name for name in vars(Task) if not name.startswith("_") and name not in METHODS), "expected", "fused"
]  # fmt: skip
"""Settings and hooks."""


def moving(task: Task) -> Moves | None:
    """The task, if it has the exact gradient of its expected loss."""
    return None if getattr(task, "expected", None) is None else task  # type: ignore[return-value]


class ForeignTask(Task):
    """A user's object with the five methods of `Task` and any of its hooks."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        for name in OPTIONAL:
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))
        if not hasattr(inner, "likelihood"):
            self.defaults = replace(self.defaults, likelihood=0.0)

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
        own: Any = type(self.inner)
        # Without the address in memory, which differs among processes.
        return f"{own.__name__}()" if own.__repr__ is object.__repr__ else repr(self.inner)
