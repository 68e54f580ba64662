"""What the shell offers when the tab key is pressed. These words are written down here, so that nothing is imported."""

from __future__ import annotations

from collections.abc import Iterable

NAMES = (
    *("synthetic", "robustness", "linear", "linear-noisy", "digits-noise", "wrong-labels"),
    *("mnist-ap", "cifar10", "cifar100", "pose"),
    *("ablation-ap", "ablation-accuracy", "ablation-batch", "ablation-pose", "voc-action", "voc-detection"),
)
"""The experiments."""
PRESETS = ("quick", "small", "paper")
METHODS = (
    *("direct-ap", "pos-ap", "neg-ap", "pos-01", "neg-01", "hinge-ap", "hinge-01", "per-ap", "per-01", "x-ent"),
    *("uniloss-ap", "uniloss-accuracy", "uniloss-pckh"),
)


def names(incomplete: str) -> list[str]:
    """Experiments."""
    return _beginning(NAMES, incomplete)


def presets(incomplete: str) -> list[str]:
    """Presets."""
    return _beginning(PRESETS, incomplete)


def methods(incomplete: str) -> list[str]:
    """Methods, also behind a comma."""
    *before, last = incomplete.split(",")
    return [",".join([*before, name]) for name in _beginning(METHODS, last) if name not in before]


def _beginning(known: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in known if name.startswith(incomplete)]
