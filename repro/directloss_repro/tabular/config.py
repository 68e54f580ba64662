"""The numbers of a fit: frozen, complete, and stored with the run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from directloss._checks import check_choice, fail
from directloss_repro.config import build, stable_hash
from directloss_repro.methods import Method, parse_method
from directloss_repro.rules import COUNT, COUNT_OR_ZERO, Rules, check_numbers, share, whole
from directloss_repro.search import Range
from directloss_repro.tabular.measures import get_measure

EXPERIMENT = "fit"
MODELS: dict[str, tuple[int, ...]] = {"mlp": (64, 64), "linear": ()}
"""Widths of the hidden layers."""
TRIALS, ITERATIONS = 20, 500
"""Settings for each loss, and the most steps of one training; the best number of them is chosen."""
BATCH, LARGE, EPOCHS = 2_048, 20_000, 10
"""More training rows than ``LARGE`` are trained in batches of ``BATCH``, for ``EPOCHS`` rounds at least."""
OF_REST_VALIDATION = 0.25
"""Share of the rows that are not test rows which chooses settings."""

RATES, DECAYS = Range(3e-4, 0.1), Range(1e-6, 0.1)
EPSILONS: dict[str, Range | tuple[float | str, ...]] = {"direct": (0.1, 1.0, 10.0), "hinge": Range(0.1, 100.0)}
"""What is searched. Each loss has its own epsilon, where it has one, and all have the same number of trials."""


def space(method: Method) -> dict[str, Range | tuple[float | str, ...]]:
    """The hyper-parameters of a method and where they are searched."""
    shared: dict[str, Range | tuple[float | str, ...]] = {"learning_rate": RATES, "weight_decay": DECAYS}
    return {**shared, "epsilon": EPSILONS[method.family]} if method.family in EPSILONS else shared


@dataclass(frozen=True)
class FitConfig:
    """Everything that the result depends on, the content of the file included."""

    data: str
    """Name of the file; its content counts, not its place."""
    sha256: str
    target: str
    positive: str
    metric: str
    methods: tuple[str, ...]
    model: str = "mlp"
    trials: int = TRIALS
    seed: int = 0
    test_share: float = 0.2
    iterations: int = ITERATIONS
    batch: int = 0
    """Rows of a batch; 0 for all rows at once."""
    impute: bool = False
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()

    noise: ClassVar[tuple[float, ...]] = (0.0,)
    select_on: ClassVar[str] = "val"
    rules: ClassVar[Rules] = {
        "trials": COUNT,
        "seed": whole(0, 2**31 - 1),
        "test_share": share(0.05, 0.5),
        "iterations": COUNT,
        "batch": COUNT_OR_ZERO,
    }

    def __post_init__(self) -> None:
        get_measure(self.metric)
        check_choice("--model", self.model, MODELS)
        check_numbers(self, lambda name: f"--{name.replace('_', '-')}")
        if len(self.methods) < 2:
            fail("--compare", "must name a loss besides the direct one", ", ".join(self.methods))
        for name in self.methods:
            method = parse_method(name)
            method.check_fits("ap", "--compare")  # whatever the metric, it is one score for each row
            method.check_full_batch("--compare")

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers."""
        return MODELS[self.model]

    def digest(self) -> str:
        """A short name for everything that one run's result depends on, besides the run's own description."""
        # More methods do not change the result of one; nor does the name of the file.
        return stable_hash({key: value for key, value in self.to_dict().items() if key not in ("methods", "data")})

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FitConfig:
        """The inverse of `to_dict`; unknown and missing keys and wrong types are errors."""
        config: FitConfig = build(cls, values, "config")
        return config

    def check_continues(self, old: FitConfig, where: str) -> None:
        """A run may go on with more losses, but with nothing else changed."""
        before, after = old.to_dict(), self.to_dict()
        for key, value in after.items():
            kept = set(value) >= set(before[key]) if key == "methods" else key == "data" or value == before[key]
            if not kept and key == "sha256":
                fail(
                    "DATA",
                    f"must have the content that the run in {where} began with",
                    "another",
                    "Choose another --out.",
                )
            if not kept:
                name = {"methods": "--compare"}.get(key, f"--{key.replace('_', '-')}")
                hint = "Leave the option out to go on with that run, or choose another folder with --out."
                fail(name, f"must be what the run in {where} has, {json.dumps(before[key])}", json.dumps(value), hint)
