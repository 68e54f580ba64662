"""Method names, as the papers write them, and the loss and hyper-parameters that each stands for: see `SUMMARIES`.

TASK is any task of the library that ranks or labels one score per item: ``ap``, ``ndcg@10``, ``f1``, ``auc`` ...;
``01`` is the papers' name for the task ``error``, the 0-1 loss of each item. ``pos-``, ``neg-`` and ``hinge-`` are Song
et al. 2016, Eq. (2) and (3), without noise and likelihood; ``hinge-ap`` is Yue et al. 2007; ``uniloss-`` is Liu et al.
2020; ``focal`` is Lin et al. 2017, and ``gce`` is Zhang and Sabuncu 2018.

Ablations add options after colons, as in ``uniloss-ap:anchors=5`` or ``uniloss-ap:bits:spline``; all other settings are
those of the experiment. All options but ``batch`` belong to UniLoss:

    anchors=N   anchors of each type                batch=N    batch size
    spline      the distance spline interpolates    bits       binaries are flipped directly, as in the paper
    nearest     good anchors lie around the nearest optimal scores, not around those that the target gives
    control     constants (good 1, nearby the current value, bad 0) replace the metric's values
    automatic   comparisons are found by probing the metric, not taken from the hand-written refactoring
    all         every step uses all comparisons, where the experiment draws a share of them
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from directloss import metrics
from directloss._checks import check_choice, fail, near
from directloss._registry import get
from directloss._uniloss.loss import UniLoss
from directloss._uniloss.refactoring import BY_HAND
from directloss.direct import DirectLoss, direct_loss
from directloss.surrogates import hinge_loss, perceptron_loss
from directloss_repro import PAPER_METHODS
from directloss_repro.ablations import Ablation
from directloss_repro.data.keypoints import bumps, pixel_labels, pixel_mask, visible

Loss = Callable[[Tensor, Tensor], Tensor]

FAMILIES = {"direct": True, "hinge": True, "plain": False, "uniloss": False}
"""The families of methods, and whether they have an epsilon. All have a learning rate and a weight decay."""

SIGNS: dict[str, int | str] = {"pos": +1, "neg": -1, "both": "both"}
PREFIXES = {
    **dict.fromkeys(SIGNS, "direct"),
    **dict.fromkeys(("direct", "per", "mse"), "plain"),
    "hinge": "hinge",
    "uniloss": "uniloss",
}
UNILOSS = {"ap": "ap", "accuracy": "accuracy", "pckh": "pck"}
"""Metrics of UniLoss with a hand-written refactoring, and their names in `directloss_repro.evaluation`."""
CLASS_TASKS = ("accuracy",)
"""Tasks on class scores."""

NUMBERS, FLAGS = ("anchors", "batch"), ("spline", "bits", "nearest", "random", "control", "automatic", "all")
"""Options with and without a number, in the order of names."""
FOUND: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"ap": metrics.average_precision, "accuracy": metrics.accuracy}
"""The metrics whose comparisons UniLoss finds for ``automatic``."""

SUMMARIES = {
    "direct-TASK": "the library's default: the expected metric, with a share of the likelihood",
    "pos-TASK": "direct loss minimization, away from worse outputs",
    "neg-TASK": "direct loss minimization, towards better outputs",
    "both-TASK": "direct loss minimization, from worse to better outputs; for decisions (accuracy, f1, 01)",
    "hinge-TASK": "structured hinge loss (hinge-ap: the ranking SVM of Yue et al. 2007)",
    "per-TASK": "structured perceptron",
    "x-ent": "cross-entropy",
    "focal": "focal loss, gamma 2: cross-entropy with less weight on items that are right",
    "gce": "generalised cross-entropy, q = 0.7: less weight on items that look wrong",
    "uniloss-METRIC": "UniLoss: the metric relaxed by interpolation (ap, accuracy, pckh)",
    "mse-WIDTH": "heatmaps: squared error against Gaussian bumps of this width in pixels",
    "METHOD:batch=N": "any of them with another batch size",
    "uniloss-METRIC:OPTION": "UniLoss with any of anchors=N, spline, bits, nearest, random, control, automatic, all",
}

DEFAULT_EPSILON: dict[str, float | str] = {"direct": "auto", "hinge": 1.0}


@dataclass(frozen=True)
class Method:
    """A named way to train a scorer.

    Example:
        >>> parse_method("pos-ap").family, parse_method("per-01").family
        ('direct', 'plain')
    """

    name: str
    kind: str
    """``direct``, ``pos``, ``neg``, ``both``, ``hinge``, ``per``, ``uniloss``, ``mse`` or one of `CLASSIFICATION`."""
    task: str
    options: tuple[tuple[str, int], ...] = ()
    """Options of an ablation and their numbers; 1 for a flag."""

    def option(self, name: str, otherwise: int = 0) -> int:
        """The number of an option, or a default."""
        return dict(self.options).get(name, otherwise)

    @property
    def family(self) -> str:
        """The grid of the config that it is tuned on."""
        return PREFIXES.get(self.kind, "plain")

    def loss_fn(
        self,
        params: Mapping[str, float | str],
        *,
        anchors: int = 16,
        interpolation: str = "inverse-distance",
        fraction: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Loss:
        """The loss as a function of finite scores and target; all keywords but ``generator`` are for UniLoss.

        Scores ``(n,)`` with labels 0 or 1 ``(n,)``, or scores ``(n, c)`` with classes ``(n,)``, or heatmaps
        ``(n, joints, h, w)`` with keypoints as `directloss_repro.data.keypoints` describes them.
        """
        if self.kind in CLASSIFICATION:
            return lambda scores, target: CLASSIFICATION[self.kind](scores, target).mean()
        if self.kind == "mse":
            return partial(_squared_error, width=float(self.task))
        if self.kind == "per":
            return partial(perceptron_loss, task=self.task, check_values=False)
        if self.kind == "direct":
            return DirectLoss(self.task, generator=generator, check_values=False)
        if self.kind == "uniloss":
            return self._uniloss(self.option("anchors", anchors), interpolation, fraction, generator)
        epsilon = params.get("epsilon", DEFAULT_EPSILON[self.family])
        shared: dict[str, Any] = {"task": self.task, "epsilon": epsilon, "check_values": False}
        if self.kind == "hinge":
            return partial(hinge_loss, **shared)
        return partial(direct_loss, **shared, sign=SIGNS[self.kind])

    def _uniloss(self, anchors: int, interpolation: str, fraction: float, generator: torch.Generator | None) -> Loss:
        relaxed = UniLoss(
            FOUND[self.task] if self.option("automatic") else self.task,
            likelihood=0,
            anchors=self._anchoring(anchors),
            interpolation="distance-spline" if self.option("spline") else interpolation,
            fraction=1.0 if self.option("all") else fraction,
            generator=generator,
        )
        if self.task != "pckh":
            return relaxed

        def loss(heatmaps: Tensor, target: Tensor) -> Tensor:
            size = heatmaps.shape[-2:]
            value: Tensor = relaxed(heatmaps, pixel_labels(target, size), pixel_mask(target, size))
            return value

        return loss

    def _anchoring(self, number: int) -> Ablation:
        return Ablation(
            *((0, 0, 3 * number) if self.option("random") else (number, number, number)),
            unit=BY_HAND[self.task].unit,
            bits=self.task if self.option("bits") else "",
            nearest=bool(self.option("nearest")),
            control=bool(self.option("control")),
        )

    def check_fits(self, metric: str, argument: str = "method") -> None:
        """Raise unless it can train an experiment judged by ``metric``: ``ap``, ``accuracy`` or ``pck``.

        ``ap`` stands for everything that takes one score per item.
        """
        if self.kind == "uniloss":
            fits = UNILOSS[self.task] == metric
        elif not self.task or self.kind == "mse":
            fits = (metric == "pck") == (self.kind == "mse")
        else:
            task = get(self.task)
            one_each = task.event_dims == task.target_dims <= 1
            fits = (metric == "ap" and one_each) or (metric == "accuracy" and self.task in CLASS_TASKS)
        if not fits:
            known = {
                "ap": f"{LIKELIHOODS}, uniloss-ap; direct-, pos-, neg-, both-, hinge- or per- with such a task",
                "accuracy": f"{LIKELIHOODS}, and uniloss-, direct-, pos-, neg-, both-, hinge- or per-accuracy",
                "pck": "uniloss-pckh and mse- with a width",
            }
            what = {"ap": "one score per item", "accuracy": "class scores", "pck": "heatmaps"}[metric]
            fail(argument, f"must support {what}", repr(self.name), f"These do: {known[metric]}.")


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """``-log p`` of each label: classes of scores ``(..., n, c)``, or labels 0 and 1 of scores ``(..., n)``."""
    if scores.dim() > target.dim():
        return F.cross_entropy(scores.flatten(0, -2), target.flatten(), reduction="none").view_as(target)
    return F.binary_cross_entropy_with_logits(scores, target.to(scores.dtype), reduction="none")


def focal(scores: Tensor, target: Tensor, gamma: float = 2.0) -> Tensor:
    """``-(1 - p)^gamma log p`` of each label (Lin et al. 2017, Eq. 4)."""
    surprise = cross_entropy(scores, target)
    return (1 - torch.exp(-surprise)) ** gamma * surprise


def generalised_cross_entropy(scores: Tensor, target: Tensor, q: float = 0.7) -> Tensor:
    """``(1 - p^q) / q`` of each label (Zhang and Sabuncu 2018, Eq. 6)."""
    return -torch.expm1(-q * cross_entropy(scores, target)) / q


CLASSIFICATION: dict[str, Loss] = {"x-ent": cross_entropy, "focal": focal, "gce": generalised_cross_entropy}
"""Losses of each label alone, without reduction."""
LIKELIHOODS = ", ".join(CLASSIFICATION)


def _squared_error(heatmaps: Tensor, target: Tensor, width: float) -> Tensor:
    """Mean over the pixels of all heatmaps whose keypoint is known."""
    seen = visible(target)
    wanted = bumps(target, width, heatmaps.shape[-2:]).to(heatmaps.dtype)
    squared = (heatmaps - wanted).square().mean((-1, -2))
    return (squared * seen).sum() / seen.sum().clamp(min=1)


def parse_method(name: str) -> Method:
    """The method of a name such as ``pos-ap``, ``neg-01``, ``hinge-ndcg@10``, ``x-ent`` or ``uniloss-ap:anchors=5``.

    Example:
        >>> parse_method("neg-01")
        Method(name='neg-01', kind='neg', task='error', options=())
        >>> parse_method("uniloss-ap:bits:anchors=5").name
        'uniloss-ap:anchors=5:bits'
    """
    name, *words = name.strip().lower().split(":")
    plain = _plain(name)
    if not words:
        return plain
    options = dict(_option(word, plain) for word in words)
    if len(options) != len(words):
        fail("method", "must have each option once", repr(":".join([name, *words])))
    ordered = tuple((known, options[known]) for known in (*NUMBERS, *FLAGS) if known in options)
    shown = [f"{known}={number}" if known in NUMBERS else known for known, number in ordered]
    return replace(plain, name=":".join([name, *shown]), options=ordered)


def _plain(name: str) -> Method:
    """A method without options."""
    if name in CLASSIFICATION:
        return Method(name, name, "")
    kind, dash, task = name.partition("-")
    if kind not in PREFIXES or not dash or not task:
        hint = near(name, PAPER_METHODS) or f"Known: {', '.join(PAPER_METHODS)}, and others such as pos-ndcg@10."
        rule = (
            f"must be one of {LIKELIHOODS}, or direct-, pos-, neg-, both-, hinge- or per- with a task, or uniloss- "
            "with a metric, or mse- with a width"
        )
        fail("method", rule, repr(name), hint)
    if kind == "uniloss":
        return Method(name, kind, check_choice("the metric of uniloss-", task, UNILOSS))
    if kind == "mse":
        return Method(name, kind, _width(task))
    task = "error" if task == "01" else task
    get(task)  # fails here, with the known names, rather than in the middle of a run
    return Method(name, kind, task)


def _option(word: str, method: Method) -> tuple[str, int]:
    """One option of a method: its name and its number."""
    name, equals, text = word.partition("=")
    known = (*NUMBERS, *FLAGS) if method.kind == "uniloss" else ("batch",)
    check_choice(f"the option of {method.name}", name, known)
    if name == "automatic" and method.task not in FOUND:
        fail("automatic", f"must be an option of UniLoss on {' or '.join(FOUND)}", repr(method.name))
    if name in FLAGS:
        if equals:
            fail(f"the option {name}", "must have no number", repr(word))
        return name, 1
    if not (text.isascii() and text.isdigit() and int(text)):
        fail(f"the option {name}", f"must have a whole number of at least 1, as in {name}=8", repr(word))
    return name, int(text)


def _width(text: str) -> str:
    if not re.fullmatch(r"\d*\.?\d+", text) or float(text) == 0:
        fail("the width of mse-", "must be a positive number of pixels", repr(text))
    return text


def parse_methods(text: str) -> tuple[str, ...]:
    """Method names of a comma-separated list; ``all`` stands for the papers' nine."""
    if text.strip().lower() == "all":
        return PAPER_METHODS
    return tuple(parse_method(name).name for name in text.replace(" ", ",").split(",") if name.strip())
