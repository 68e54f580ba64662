"""Method names, as the papers write them, and the loss and hyper-parameters that each stands for.

    pos-TASK    direct loss, away from worse        Song et al. 2016, Eq. (2) and (3), sign +1
    neg-TASK    direct loss, towards better         the same, sign -1
    hinge-TASK  structured hinge                    hinge-ap is Yue et al. 2007
    per-TASK    structured perceptron
    x-ent       cross-entropy of the labels

TASK is any task of the library that ranks or labels one score per item: ``ap``, ``ndcg@10``, ``f1``, ``auc`` ...;
``01`` is the papers' name for the task ``error``, the 0-1 loss of each item.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from directloss._checks import fail, near
from directloss.direct import direct_loss
from directloss.surrogates import hinge_loss, perceptron_loss
from directloss.task import get

FAMILIES = {"direct": True, "hinge": True, "plain": False}
"""The families of methods, and whether they have an epsilon. All have a learning rate and a weight decay."""

PREFIXES = {"pos": "direct", "neg": "direct", "hinge": "hinge", "per": "plain"}
PAPER_METHODS = ("pos-ap", "neg-ap", "pos-01", "neg-01", "hinge-ap", "hinge-01", "per-ap", "per-01", "x-ent")
"""The nine methods of the papers' figures."""

SUMMARIES = {
    "pos-TASK": "direct loss minimization, away from worse outputs",
    "neg-TASK": "direct loss minimization, towards better outputs",
    "hinge-TASK": "structured hinge loss (hinge-ap: the ranking SVM of Yue et al. 2007)",
    "per-TASK": "structured perceptron",
    "x-ent": "cross-entropy",
}

DEFAULT_EPSILON: dict[str, float | str] = {"direct": "auto", "hinge": 1.0}


@dataclass(frozen=True)
class Method:
    """A named way to train a scorer.

    Example:
        >>> parse_method("pos-ap").family, parse_method("per-01").hyper_parameters
        ('direct', ('learning_rate', 'weight_decay'))
    """

    name: str
    kind: str
    """``pos``, ``neg``, ``hinge``, ``per`` or ``x-ent``."""
    task: str

    @property
    def family(self) -> str:
        """Which grid of the config it is tuned on."""
        return PREFIXES.get(self.kind, "plain")

    @property
    def hyper_parameters(self) -> tuple[str, ...]:
        """What is tuned."""
        shared = ("learning_rate", "weight_decay")
        return (*shared, "epsilon") if FAMILIES[self.family] else shared

    def loss(self, scores: Tensor, target: Tensor, params: Mapping[str, float | str]) -> Tensor:
        """The loss of one batch: scores ``(n,)``, labels 0 or 1 ``(n,)``. The caller vouches for finite scores."""
        if self.kind == "x-ent":
            return F.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))
        if self.kind == "per":
            return perceptron_loss(scores, target, self.task, check_values=False)
        epsilon = params.get("epsilon", DEFAULT_EPSILON[self.family])
        if self.kind == "hinge":
            return hinge_loss(scores, target, self.task, epsilon=epsilon, check_values=False)
        return direct_loss(
            scores, target, self.task, epsilon=epsilon, sign=+1 if self.kind == "pos" else -1, check_values=False
        )


def parse_method(name: str) -> Method:
    """The method of a name such as ``pos-ap``, ``neg-01``, ``hinge-ndcg@10`` or ``x-ent``.

    Example:
        >>> parse_method("neg-01")
        Method(name='neg-01', kind='neg', task='error')
    """
    name = name.strip().lower()
    if name == "x-ent":
        return Method(name, "x-ent", "")
    kind, dash, task = name.partition("-")
    if kind not in PREFIXES or not dash or not task:
        hint = near(name, PAPER_METHODS) or f"Known: {', '.join(PAPER_METHODS)}, and others such as pos-ndcg@10."
        fail("method", "must be x-ent, or pos-, neg-, hinge- or per- with a task", repr(name), hint)
    task = "error" if task == "01" else task
    get(task)  # fails here, with the known names, rather than in the middle of a run
    return Method(name, kind, task)


def parse_methods(text: str) -> tuple[str, ...]:
    """Method names of a comma-separated list; ``all`` stands for the papers' nine."""
    if text.strip().lower() == "all":
        return PAPER_METHODS
    return tuple(parse_method(name).name for name in text.replace(" ", ",").split(",") if name.strip())
