"""One bad file must not lose the work on the others: it is left out, remembered, and told at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from directloss._checks import DirectLossError, fail


@dataclass
class Skipped:
    """What could not be used, and why. With ``strict`` the first such thing is an error.

    Example:
        >>> skipped = Skipped()
        >>> for name in ["a.jpg", "b.jpg"]:
        ...     with skipped.catching():
        ...         if name == "b.jpg":
        ...             fail(name, "must be an image", "a text file")
        >>> print(skipped.summary("image"))
        1 image was left out:
          b.jpg must be an image, but it is a text file.
    """

    strict: bool = False
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
            if self.strict:
                raise
            self.reasons.append(str(error))

    def note(self, message: str) -> None:
        """Something was repaired; in strict mode that is an error as well."""
        if self.strict:
            raise DirectLossError(message)
        self.notes.append(message)

    def check_something_left(self, left: int, what: str) -> None:
        """Nothing left is an error, with the first reasons in its text."""
        if left == 0:
            reasons = " ".join(self.reasons[:3]) or "There were none to begin with."
            fail(what, "must have at least one usable file", f"without any ({len(self.reasons)} left out)", reasons)

    def summary(self, what: str = "file", most: int = 10) -> str:
        """All in a few lines, for people; empty if nothing happened."""
        lines = []
        if self.reasons:
            count = len(self.reasons)
            lines.append(f"{count} {what} was left out:" if count == 1 else f"{count} {what}s were left out:")
            lines += _first(self.reasons, most)
        if self.notes:
            count = len(self.notes)
            lines.append(f"{count} repair was made:" if count == 1 else f"{count} repairs were made:")
            lines += _first(self.notes, most)
        return "\n".join(lines)


def _first(sentences: list[str], most: int) -> list[str]:
    more = len(sentences) - most
    return [f"  {sentence}" for sentence in sentences[:most]] + ([f"  ... and {more} more"] if more > 0 else [])
