"""Plots of what a loss does: a step in a ranking, and the loss along one score.

Each function takes tensors, draws on ``ax`` or a new figure, and returns the `matplotlib.axes.Axes`, without showing or
saving it. matplotlib is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from directloss._checks import (
    check_count,
    check_finite,
    check_not_negative,
    check_positive,
    check_same_shape,
    check_scores,
    fail,
)
from directloss._problem import prepare
from directloss._registry import as_task
from directloss.direct import direct_loss, losses_of
from directloss.integrations._needs import needed
from directloss.noise import Noise
from directloss.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["landscape", "step"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#5a6470")
"""After Okabe and Ito: safe for all kinds of colour vision. Dashes or markers repeat the distinction."""
DASHES = ("-", "--", "-.", ":")
ARROW = 0.2
"""Length of the longest arrow of `step`, as a fraction of the range of the scores."""
FEW = 30
"""Lists up to this length label the row of each item."""

Loss = Callable[[Tensor, Tensor], Tensor]


def step(
    scores: Tensor,
    target: Tensor,
    loss: str | Task | Loss = "ap",
    *,
    rate: float | None = None,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """How one gradient descent step moves the items of a ranking: one row and arrow per item, best rank first.

    Args:
        scores: one list, shape ``(n,)``.
        target: shape ``(n,)``; items above 0 are drawn as relevant.
        loss: a name or `Task` for `direct_loss`, or any loss of scores and target.
        rate: the step size; by default the longest arrow is a fifth of the range of the scores.
        names: item names, in the order of ``scores``.
        ax: where to draw; a new figure by default.

    Examples:
        >>> ax = step(torch.tensor([2.0, 1.0, 0.5]), torch.tensor([0, 1, 0]), "ap")
        >>> ax.get_ylabel()
        'rank'
    """
    scores = _one_list(scores)
    target = check_same_shape(target, scores).detach()
    if names is not None and len(names) != len(scores):
        fail("names", f"must have one name for each of the {len(scores)} items", f"of length {len(names)}")
    loss_fn: Loss = loss if callable(loss) and not isinstance(loss, Task) else partial(direct_loss, task=loss)
    leaf = scores.clone().requires_grad_()
    with torch.enable_grad():
        before: Any = loss_fn(leaf, target)
        if not isinstance(before, Tensor) or before.numel() != 1 or not before.requires_grad:
            fail("loss", "must return one number with a gradient", before, 'Try reduction="mean".')
        (slope,) = torch.autograd.grad(before, leaf)
    if rate is None:
        longest, reach = float(slope.abs().max()), float(scores.max() - scores.min()) or 1.0
        rate = ARROW * reach / longest if longest else 1.0
    moved = scores - check_positive("rate", rate) * slope
    with torch.no_grad():
        after = loss_fn(moved, target)

    order = scores.argsort(descending=True, stable=True)
    rank = torch.arange(1, len(scores) + 1)
    x, shift, relevant = scores[order].cpu(), (moved - scores)[order].cpu(), target[order].cpu() > 0
    ax = _axes(ax, "x", height=max(2.4, 0.9 + 0.24 * min(len(scores), FEW)))
    goes = shift != 0
    ax.quiver(
        x[goes], rank[goes], shift[goes], torch.zeros(int(goes.sum())),
        color=[COLOURS[0] if right else COLOURS[1] for right in relevant[goes].tolist()],
        angles="xy", scale_units="xy", scale=1, width=0.005, minlength=0,
    )  # fmt: skip
    ax.plot(x[relevant], rank[relevant], "o", color=COLOURS[0], label="relevant", zorder=3)
    ax.plot(x[~relevant], rank[~relevant], "o", color=COLOURS[1], markerfacecolor="white", label="irrelevant", zorder=3)
    if len(scores) <= FEW:
        called = rank.tolist() if names is None else [names[place] for place in order.tolist()]
        ax.set_yticks(rank, [str(name) for name in called])
    ends = torch.cat((x, x + shift))
    room = 0.05 * float(ends.max() - ends.min()) or 1.0
    ax.set(xlabel="score", ylabel="rank", ylim=(len(scores) + 0.6, 0.4))
    ax.set_xlim(float(ends.min()) - room, float(ends.max()) + room)
    ax.set_title(f"loss {before.item():.3f}, after the step {after.item():.3f}")
    ax.legend(frameon=False)
    return ax


def landscape(
    scores: Tensor,
    target: Tensor,
    task: str | Task | Any = "ap",
    *,
    item: int = 0,
    noise: Sequence[float] = (0.0, 1.0, 3.0),
    points: int = 201,
    samples: int = 1000,
    generator: torch.Generator | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The expected loss while the score of one item moves and the others stay, for several scales of noise.

    Without noise it is a staircase with slope 0 almost everywhere; with noise it is smooth.

    Args:
        scores: one problem, shape ``(n,)``.
        target: the labels, as the task takes them.
        task: a name or a `Task`.
        item: the index of the score that moves.
        noise: one curve for each scale; 0 is the loss as it is.
        points: number of values of the score, from half the range of the scores below them to half above.
        samples: draws of noise, shared by all points of a curve.
        generator: source of the noise; PyTorch's global generator by default.
        ax: where to draw; a new figure by default.

    Examples:
        >>> ax = landscape(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0, 1, 0]), item=1, noise=(0.0, 0.5))
        >>> [line.get_label() for line in ax.lines]
        ['no noise', 'noise 0.5', 'now']
    """
    task, scores = as_task(task), _one_list(scores)
    if check_count("item", item, least=0) >= len(scores):
        fail("item", f"must be the index of a score, from 0 to {len(scores) - 1}", item)
    if not noise:
        fail("noise", "must have at least one scale", noise, "0 is the loss without noise.")
    scales = [check_not_negative("noise", scale) for scale in noise]
    points, samples = check_count("points", points, least=2), check_count("samples", samples)
    low, high = float(scores.min()), float(scores.max())
    reach = (high - low) / 2 or 1.0
    moved = torch.linspace(low - reach, high + reach, points, dtype=scores.dtype, device=scores.device)
    options: dict[str, Any] = {"reduction": "none", "mask": None, "dim": None, "weight": None, "check_values": True}
    problem, curves = prepare(scores, target, task, **options), []
    problem.check()
    for scale in scales:
        shifts = Noise(scale, samples, generator).perturb(torch.zeros_like(scores), task.defaults.density)
        lists, curve = scores + shifts, []
        for position in moved:
            lists[:, item] = position + shifts[:, item]
            curve.append(float(losses_of(problem.repeated(lists))[0].mean()))
        curves.append(curve)

    ax = _axes(ax, "y")
    for place, (scale, curve) in enumerate(zip(scales, curves, strict=True)):
        look: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[place % len(DASHES)]}
        ax.plot(moved.cpu(), curve, **look, linewidth=2, label=f"noise {scale:g}" if scale else "no noise")
    ax.axvline(float(scores[item]), color="0.5", linewidth=1, linestyle=(0, (1, 3)), label="now")
    ax.set(xlabel=f"score of item {item}", ylabel="expected loss" if any(scales) else "loss")
    ax.legend(frameon=False)
    return ax


def _one_list(scores: object) -> Tensor:
    """One list of finite scores, detached, in float32 or wider."""
    scores = check_scores(scores, 1, "(n,)").detach()
    if scores.dim() != 1:
        fail("scores", "must be one list, of shape (n,)", f"of shape {tuple(scores.shape)}", "Pick one of a batch.")
    check_finite(scores)
    return scores.float() if scores.dtype.itemsize < 4 else scores


def _axes(ax: Axes | None, grid: Literal["x", "y"], height: float = 3.4) -> Axes:
    """The axes to draw on, with lines along one axis, and without top and right spines."""
    module = partial(needed, user="directloss.plot", install="matplotlib")
    if ax is not None and not isinstance(ax, module("matplotlib.axes").Axes):
        fail("ax", "must be a matplotlib.axes.Axes", f"a {type(ax).__name__}", "Create one with plt.subplots().")
    place: Axes = ax or module("matplotlib.pyplot").subplots(figsize=(6.0, height), layout="constrained")[1]
    place.spines[["top", "right"]].set_visible(False)
    place.set_axisbelow(True)
    place.grid(axis=grid, linewidth=0.6, alpha=0.5)
    return place
