"""A readable description of what was found in a metric's code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A line of the metric that makes decisions."""

    where: str
    operation: str
    calls: int
    variables: int

    def __str__(self) -> str:
        times = "" if self.calls == 1 else f" (run {self.calls} times)"
        return f"{self.where}: {self.operation}{times}, {self.variables:,} variable{'s' * (self.variables != 1)}"


@dataclass(frozen=True)
class Explanation:
    """The decisions of a metric by file and line, and their variables."""

    metric: str
    steps: tuple[Step, ...]
    found: int
    """Variables before pruning."""
    kept: int
    """Variables after pruning."""
    pairs: int
    thresholds: int
    general: int
    """Variables before pruning, by kind: two scores, a score and a constant, anything else."""
    guards: tuple[str, ...] = ()
    """Decisions that only steer the metric's Python code; they keep the recorded answer."""
    pruning: str = "none"
    pattern: str = "none"
    warnings: tuple[str, ...] = ()

    @property
    def differences(self) -> bool:
        """Whether every variable is a difference of two scores, or of a score and a constant."""
        return self.general == 0

    def __str__(self) -> str:
        lines = [f"{self.metric} decides at"]
        lines += [f"  {step}" for step in self.steps]
        kinds = f"{self.pairs:,} pairs of scores, {self.thresholds:,} thresholds, {self.general:,} of general form"
        lines.append(f"Variables: {self.found:,} ({kinds}); {self.kept:,} after pruning ({self.pruning}).")
        lines.append("All of them are differences of scores." if self.differences else "Not all are differences: slow.")
        lines.append(f"Pattern for further batches: {self.pattern}.")
        if self.guards:
            lines.append("Frozen, as they only steer the code:")
            lines += [f"  {guard}" for guard in self.guards]
        lines += [f"Warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)
