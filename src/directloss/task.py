"""The task protocol: the five methods that the theorem needs, and a few optional hooks.

Shapes in docstrings: ``b`` for any leading batch dimensions (one problem each), ``n`` for items, ``c`` for classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor

from directloss._checks import check_finite, check_tensor

Output = Any
"""What a task predicts: a tensor, a tuple of tensors, or any object."""


class Solve(NamedTuple):
    """A request to a task that computes losses and gradients together."""

    epsilon: float | Tensor
    """A number, or one per problem, shape ``b``."""
    signs: tuple[int, ...]
    """+1, -1, or both: the gradient is the mean."""
    gradient: bool
    """Whether to compute the gradient, or only the losses."""
    noisy: Tensor | None = None
    """Perturbed scores ``(draws, *scores.shape)`` to average the gradient over; None for the scores themselves."""
    automatic: bool = False
    """Whether epsilon still needs to be multiplied by the task's `unit_epsilon`."""
    padded: bool = False
    """Whether some items may be padding."""
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


class Task(ABC):
    """A prediction problem and the loss that judges it.

    The five abstract methods are all that `direct_loss`, `hinge_loss` and `perceptron_loss` need. All methods take
    batches: the leading dimensions of ``scores`` are independent problems, and the draws of `direct_loss` are one more
    leading dimension. A class with these methods does not have to inherit from this one.
    """

    event_dims: int = 1
    """How many trailing dimensions of ``scores`` make up one problem."""
    target_dims: int = 1
    """How many trailing dimensions of ``target`` make up one problem."""
    shape_words: str = "(..., n)"
    """The shape of ``scores`` in error messages."""
    maskable: bool = False
    """Whether a problem may contain padding, which the task sees as label -1. If not, a mask over items raises.
    A mask over whole problems (``target_dims`` 0) never reaches the task."""
    padding_label: bool = False
    """Whether users may mark padding with label -1 as well as with ``mask``; `check` then sees it."""
    advised_sign: int | str = "both"
    """The meaning of ``sign="auto"``: +1 where moving away from worse outputs is enough, otherwise ``"both"``."""
    advised_noise: float = 0.5
    """The meaning of ``noise="auto"``, in logits: 0.5, or 1 for rankings."""
    density: str = "gumbel"
    """The distribution of the noise: ``"gumbel"`` where scores are compared with each other (a ranking is then drawn
    from Plackett-Luce, a class from the softmax), ``"logistic"`` where each is compared with 0 (a decision is then
    drawn from the sigmoid)."""
    no_item_weights: str = "the task does not define items that count more than others"
    """Why the items of a problem cannot have weights, for the error message; see `weighted`."""

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

    def weighted(self, weight: Tensor) -> Task | None:
        """This task for weighted items, or None if it has no exact inference for them. ``weight`` has the shape of the
        target (float64, finite, not negative, 0 for padding).
        """
        return None

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
        """The negative log-likelihood of the target when the output is drawn under noise of scale 1 (`density`),
        shape ``b``, differentiable; None if the task has none. Padding is ignored.
        """
        return None

    def fused(self, scores: Tensor, target: Tensor, how: Solve) -> Solved | None:
        """Checks, losses and gradient in one call, for tasks that are faster this way than through the five methods."""
        return None

    def advised_way(self, items: int, signs: tuple[int, ...]) -> str | None:
        """How to process scores that are not on the CPU (`directloss.kernels.way`): "dense", if the task has such a
        form for this many items per problem; "host"; or None for the task's own operations on the device.
        """
        return None

    def dense(self, scores: Tensor, target: Tensor, how: Solve) -> Solved | None:
        """Like `fused`, in few operations and without synchronisation; values are not checked.

        If the gradient is needed, ``how.noisy`` is given, if only as the scores themselves.
        """
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


METHODS = ("predict", "augmented", "truth", "loss", "score")
OPTIONAL = [name for name in vars(Task) if not name.startswith("_") and name not in METHODS]
"""Settings and hooks."""


class ForeignTask(Task):
    """A user's object with the five methods of `Task` and any of its hooks."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        for name in OPTIONAL:
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
