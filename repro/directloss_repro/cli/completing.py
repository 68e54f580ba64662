"""What the shell offers when the tab key is pressed; nothing slow is loaded for it."""

from __future__ import annotations

from collections.abc import Iterable

import click

from directloss_repro.experiments import EXPERIMENTS, Experiment
from directloss_repro.methods import PAPER_METHODS


def names(incomplete: str) -> list[str]:
    """Experiments."""
    return _beginning(EXPERIMENTS, incomplete)


def presets(ctx: click.Context, incomplete: str) -> list[str]:
    """Presets of the experiment that was named before, or of all."""
    named = _named(ctx)
    known = [named] if named is not None else EXPERIMENTS.values()
    return _beginning(dict.fromkeys(preset for one in known for preset in one.presets), incomplete)


def methods(ctx: click.Context, incomplete: str) -> list[str]:
    """Methods, also behind a comma: those of the experiment that was named before, then the papers' nine."""
    named = _named(ctx)
    own = named.config("paper").methods if named is not None else ()
    *before, last = incomplete.split(",")
    known = [name for name in dict.fromkeys((*own, *PAPER_METHODS)) if name not in before]
    return [",".join([*before, name]) for name in _beginning(known, last)]


def _named(ctx: click.Context) -> Experiment | None:
    """The experiment of the line so far; of a line that cannot be read yet, click leaves the words in ``args``."""
    return next((EXPERIMENTS[word] for word in (ctx.params.get("name"), *ctx.args) if word in EXPERIMENTS), None)


def _beginning(known: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in known if name.startswith(incomplete)]
