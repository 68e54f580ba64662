"""Plots of what a loss does: a step in a ranking, precision and recall, the loss along one score, reliability.

Each function takes tensors, draws on ``ax`` or a new figure, and returns the `matplotlib.axes.Axes`, without showing or
saving it. matplotlib is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from directloss._checks import (
    check_count,
    check_finite,
    check_labels,
    check_not_negative,
    check_positive,
    check_same_shape,
    check_scores,
    fail,
)
from directloss._registry import as_task
from directloss.direct import direct_loss
from directloss.integrations._needs import needed
from directloss.metrics import average_precision
from directloss.noise import Noise, shaped
from directloss.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["landscape", "precision_recall", "reliability", "step"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#5a6470")
"""After Okabe and Ito: safe for all kinds of colour vision. Dashes or markers repeat the distinction."""
DASHES = ("-", "--", "-.", ":")
ARROW = 0.2
"""Length of the longest arrow of `step`, as a fraction of the range of the scores."""
FEW = 30
"""Lists up to this length label the row of each item."""
CORNERS = 1000
"""Points of a precision curve: more are invisible, and an SVG with millions does not open."""
AT_ONCE = 2**20
"""Scores that `landscape` perturbs at a time: 8 MB in float64."""
Z = 1.96
"""Normal quantile of a two-sided 95 % interval."""

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
    scores, target = _one_list(scores, target)
    if names is not None and len(names) != len(scores):
        fail("names", f"must have one name for each of the {len(scores)} items", f"of length {len(names)}")
    loss = _as_loss(loss)
    before, slope = _gradient(loss, scores, target)
    rate = _rate(scores, slope) if rate is None else check_positive("rate", rate)
    moved = scores - rate * slope
    with torch.no_grad():
        after = float(loss(moved, target))

    order = scores.argsort(descending=True, stable=True)
    rank = torch.arange(1, len(scores) + 1)
    x, shift, relevant = scores[order].cpu(), (moved - scores)[order].cpu(), target[order].cpu() > 0
    ax = _axes(ax, height=max(2.4, 0.9 + 0.24 * min(len(scores), FEW)))
    goes = shift != 0
    ax.quiver(
        x[goes], rank[goes], shift[goes], torch.zeros(int(goes.sum())), relevant[goes].logical_not().long(),
        cmap=_needed("matplotlib.colors").ListedColormap(COLOURS[:2]), clim=(0, 1),
        angles="xy", scale_units="xy", scale=1, width=0.005, minlength=0,
    )  # fmt: skip
    for items, colour, face, label in (
        (relevant, COLOURS[0], COLOURS[0], "relevant"),
        (~relevant, COLOURS[1], "white", "irrelevant"),
    ):
        ax.plot(x[items], rank[items], "o", color=colour, markerfacecolor=face, label=label, zorder=3)
    if len(scores) <= FEW:
        called = range(1, len(scores) + 1) if names is None else [names[place] for place in order.tolist()]
        ax.set_yticks(rank, [str(name) for name in called])
    ends = torch.cat((x, x + shift))
    room = 0.05 * float(ends.max() - ends.min()) or 1.0
    ax.set(xlabel="score", ylabel="rank", ylim=(len(scores) + 0.6, 0.4))
    ax.set_xlim(float(ends.min()) - room, float(ends.max()) + room)
    ax.set_title(f"loss {before:.3f}, after the step {after:.3f}")
    return _finished(ax, "x")


def precision_recall(scores: Tensor | Mapping[str, Tensor], target: Tensor, *, ax: Axes | None = None) -> Axes:
    """Precision over recall of one or several rankings, each with its AP, the area under its curve.

    Args:
        scores: shape ``(n,)``, or several by name, as in ``{"before": a, "after": b}``.
        target: shape ``(n,)``, 1 relevant and 0 irrelevant.
        ax: where to draw; a new figure by default.

    Examples:
        >>> ax = precision_recall({"before": torch.tensor([2.0, 1.0]), "after": torch.tensor([1.0, 2.0])},
        ...                       torch.tensor([0, 1]))
        >>> [line.get_label() for line in ax.lines]
        ['before, AP 0.500', 'after, AP 1.000', 'chance 0.500']
    """
    curves = _by_name("scores", scores, target)
    share = float(target.double().mean())
    if share == 0:
        fail("target", "must have a relevant item", "0 everywhere", "Recall is not defined without one.")
    ax = _axes(ax)
    for place, (name, (values, labels)) in enumerate(curves.items()):
        recall, precision = _curve(values, labels)
        label = f"{name}AP {float(average_precision(values, labels)):.3f}"
        ax.plot(recall, precision, **_look(place), drawstyle="steps-pre", label=label)
    ax.axhline(share, color="0.5", linewidth=1, linestyle=(0, (1, 3)), label=f"chance {share:.3f}")
    ax.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.03))
    return _finished(ax)


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
    task = as_task(task)
    scores = _list("scores", scores)
    if check_count("item", item, least=0) >= len(scores):
        fail("item", f"must be the index of a score, from 0 to {len(scores) - 1}", item)
    if not noise:
        fail("noise", "must have at least one scale", noise, "0 is the loss without noise.")
    scales = [check_not_negative("noise", scale) for scale in noise]
    points, samples = check_count("points", points, least=2), check_count("samples", samples)
    low, high = float(scores.min()), float(scores.max())
    reach = (high - low) / 2 or 1.0
    moved = torch.linspace(low - reach, high + reach, points, dtype=scores.dtype, device=scores.device)
    lists = scores.repeat(points, 1)
    lists[:, item] = moved
    curves = [_expected_loss(lists, target, task, scale, samples, generator) for scale in scales]

    ax = _axes(ax)
    for place, (scale, curve) in enumerate(zip(scales, curves, strict=True)):
        ax.plot(moved.cpu(), curve.cpu(), **_look(place), label=f"noise {scale:g}" if scale else "no noise")
    ax.axvline(float(scores[item]), color="0.5", linewidth=1, linestyle=(0, (1, 3)), label="now")
    ax.set(xlabel=f"score of item {item}", ylabel="expected loss" if any(scales) else "loss")
    return _finished(ax, "y")


def reliability(
    probabilities: Tensor | Mapping[str, Tensor], target: Tensor, *, bins: int = 10, ax: Axes | None = None
) -> Axes:
    """How often events with predicted probability p happen; on the diagonal, p is right.

    One marker per non-empty bin of equal width, at its mean probability, with a 95 % interval (Wilson). The legend
    shows the expected calibration error (ECE): the mean distance from the diagonal, weighted by bin size.

    Args:
        probabilities: shape ``(n,)``, between 0 and 1, or several by name, as in ``{"raw": a, "calibrated": b}``.
        target: shape ``(n,)``, 1 if the event happened, otherwise 0.
        bins: the number of bins.
        ax: where to draw; a new figure by default.

    Examples:
        >>> ax = reliability(torch.tensor([0.1, 0.1, 0.9, 0.9]), torch.tensor([0, 0, 1, 1]), bins=2)
        >>> [line.get_label() for line in ax.lines][0]
        'perfect'
    """
    bins = check_count("bins", bins)
    given = _by_name("probabilities", probabilities, target)
    for values, _ in given.values():
        wrong = values[(values < 0) | (values > 1)]
        if len(wrong):
            fail("probabilities", "must lie between 0 and 1", wrong[0].item(), "Apply torch.sigmoid to logits.")
    ax = _axes(ax, width=4.2, height=4.0)
    ax.plot([0, 1], [0, 1], color="0.5", linewidth=1, linestyle=(0, (1, 3)), label="perfect")
    for place, (name, (values, labels)) in enumerate(given.items()):
        count, mean, observed = _binned(values, labels, bins)
        error = float((count * (mean - observed).abs()).sum() / count.sum())
        ax.errorbar(
            mean, observed, _wilson(count, observed), **_look(place), capsize=2.5, elinewidth=1, markersize=5,
            marker="osD^"[place % 4], label=f"{name}ECE {error:.3f}",
        )  # fmt: skip
    ax.set(xlabel="probability", ylabel="observed share", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    return _finished(ax)


# ---------------------------------------------------------------------- numbers


def _gradient(loss: Loss, scores: Tensor, target: Tensor) -> tuple[float, Tensor]:
    """The value of the loss, and its gradient with respect to the scores."""
    leaf = scores.clone().requires_grad_()
    with torch.enable_grad():
        value: Any = loss(leaf, target)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            fail("loss", "must return one number with a gradient", value, 'Try reduction="mean".')
        (slope,) = torch.autograd.grad(value, leaf)
    return float(value.detach()), slope


def _as_loss(loss: str | Task | Loss) -> Loss:
    """Names and tasks as direct losses, other callables unchanged."""
    if callable(loss) and not isinstance(loss, Task):
        return loss
    return partial(direct_loss, task=loss)


def _rate(scores: Tensor, slope: Tensor) -> float:
    """The step size that gives the longest arrow its default length; 1 if nothing moves."""
    longest = float(slope.abs().max())
    reach = float(scores.max() - scores.min()) or 1.0
    return ARROW * reach / longest if longest else 1.0


def _curve(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Recall and precision at each score where recall grows, and the first precision again at recall 0."""
    order = scores.argsort(descending=True)
    values, hits = scores[order].cpu(), target[order].cpu().double().cumsum(0)
    last = torch.cat((values[1:] != values[:-1], torch.tensor([True])))
    hits, taken = hits[last], torch.arange(1, len(hits) + 1)[last]
    grows = torch.diff(hits, prepend=torch.zeros(1)) > 0
    recall, precision = (hits / hits[-1])[grows], (hits / taken)[grows]
    kept = torch.linspace(0, len(recall) - 1, min(len(recall), CORNERS)).round().long()
    return torch.cat((torch.zeros(1), recall[kept])), torch.cat((precision[:1], precision[kept]))


def _expected_loss(
    lists: Tensor, target: Tensor, task: Task, scale: float, samples: int, generator: torch.Generator | None
) -> Tensor:
    """The mean loss of each list under noise, shape ``(points,)``, computed in pieces that fit into memory."""
    samples = samples if scale else 1
    total = torch.zeros(len(lists), dtype=torch.float64)
    for start in range(0, samples, AT_ONCE // lists.numel() + 1):
        draws = min(AT_ONCE // lists.numel() + 1, samples - start)
        uniform = Noise(scale, draws, generator).uniform(lists[:1])  # the same noise for all points
        noisy = lists + scale * shaped(uniform, task.defaults.density)
        labels = target.expand(draws, len(lists), *target.shape)
        with torch.no_grad():
            losses = direct_loss(noisy, labels, task, reduction="none")
        total += losses.double().sum(0).cpu()
    return total / samples


def _binned(values: Tensor, labels: Tensor, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Size, mean probability and share of ones of each non-empty bin."""
    values, labels = values.double().cpu(), labels.double().cpu()
    place = (values * bins).long().clamp(max=bins - 1)
    count, mean, observed = (
        torch.zeros(bins, dtype=torch.float64).index_add(0, place, number)
        for number in (torch.ones_like(values), values, labels)
    )
    full = count > 0
    return count[full], mean[full] / count[full], observed[full] / count[full]


def _wilson(count: Tensor, share: Tensor) -> Tensor:
    """Distances of the bounds of a 95 % interval below and above a share, shape ``(2, bins)``."""
    centre = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z / (1 + Z**2 / count) * (share * (1 - share) / count + Z**2 / (4 * count**2)).sqrt()
    return torch.stack((share - centre + half, centre + half - share)).clamp(min=0)


# ---------------------------------------------------------------------- arguments and axes


def _list(argument: str, values: object) -> Tensor:
    """One list of finite numbers, detached."""
    values = check_scores(values, 1, "(n,)", argument).detach()
    if values.dim() != 1:
        fail(argument, "must be one list, of shape (n,)", f"of shape {tuple(values.shape)}", "Pick one of a batch.")
    check_finite(values, argument)
    return values.float() if values.dtype.itemsize < 4 else values


def _one_list(values: object, target: object, argument: str = "scores") -> tuple[Tensor, Tensor]:
    """A list and its labels."""
    values = _list(argument, values)
    return values, check_same_shape(target, values).detach()


def _by_name(argument: str, given: Tensor | Mapping[str, Tensor], target: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Lists with labels 0 and 1, keyed by the prefix of their legend entries: the name, if given."""
    if isinstance(given, Mapping) and not given:
        fail(argument, "must hold at least one list", given)
    named = {f"{name}, ": values for name, values in given.items()} if isinstance(given, Mapping) else {"": given}
    lists = {name: _one_list(values, target, argument) for name, values in named.items()}
    check_labels(target)
    return lists


def _needed(module: str) -> Any:
    needed("matplotlib", "directloss.plot", "matplotlib")
    return import_module(module)


def _axes(ax: Axes | None, width: float = 6.0, height: float = 3.4) -> Axes:
    """The axes to draw on, without top and right spines."""
    if ax is not None and not isinstance(ax, _needed("matplotlib.axes").Axes):
        fail("ax", "must be a matplotlib.axes.Axes", f"a {type(ax).__name__}", "Create one with plt.subplots().")
    place: Axes = ax or _needed("matplotlib.pyplot").subplots(figsize=(width, height), layout="constrained")[1]
    place.spines[["top", "right"]].set_visible(False)
    place.set_axisbelow(True)
    return place


def _finished(ax: Axes, axis: Literal["both", "x", "y"] = "both") -> Axes:
    """The axes with a grid and a legend."""
    ax.grid(axis=axis, linewidth=0.6, alpha=0.5)
    ax.legend(frameon=False)
    return ax


def _look(place: int) -> dict[str, Any]:
    """Colour and dash of the curve with this index."""
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[place % len(DASHES)], "linewidth": 2}
