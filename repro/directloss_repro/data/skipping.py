"""One bad file must not lose the work on the others: it is left out, remembered, and told at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from directloss._checks import DirectLossError, fail


@dataclass
class Skipped:
    """What could not be used, and why.

    Example:
        >>> skipped = Skipped()
        >>> for name in ["a.jpg", "b.jpg"]:
        ...     with skipped.catching():
        ...         if name == "b.jpg":
        ...             fail(name, "must be an image", "a text file")
        >>> skipped.reasons
        ['b.jpg must be an image, but it is a text file.']
    """

    reasons: list[str] = field(default_factory=list)
    """Why something was left out: one sentence each, which begins with the name of the file."""
    notes: list[str] = field(default_factory=list)
    """What was repaired, such as a box that was cut at the border of its image."""

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Work on one file. If it cannot be used, the rest of the block is left and the reason is kept."""
        try:
            yield
        except DirectLossError as error:
            self.reasons.append(str(error))

    def check_something_left(self, left: int, what: str) -> None:
        """Nothing left is an error, with the first reasons in its text."""
        if left == 0:
            reasons = " ".join(self.reasons[:3]) or "There were none to begin with."
            fail(what, "must have at least one usable file", f"without any ({len(self.reasons)} left out)", reasons)
