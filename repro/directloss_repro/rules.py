"""Rules for the numbers of a config: each number has one, declared beside its field."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from directloss._checks import fail

LARGEST = 1_000_000_000
"""No whole number of a config is meant to be larger."""


@dataclass(frozen=True)
class Rule:
    """What a number must be, in words and as a test. A list obeys if each of its numbers does.

    Example:
        >>> COUNT.obeyed(3), COUNT.obeyed(0), SHARE.obeyed(float("nan"))
        (True, False, False)
    """

    words: str
    obeyed: Callable[[float], bool]
    hint: str = ""

    def check(self, argument: str, value: float | Iterable[float]) -> None:
        """Complain about a number that does not obey."""
        for one in value if isinstance(value, Iterable) else (value,):
            if not self.obeyed(one):
                fail(argument, f"must be {self.words}", one, self.hint)


Rules = Mapping[str, Rule]


def at_least(least: int) -> Rule:
    """Whole numbers from ``least`` on; that a number is whole, the type of its field says."""
    words = f"a whole number of at least {least} and at most {LARGEST:,}"
    return Rule(words, lambda value: least <= value <= LARGEST)


def whole(least: int, most: int, why: str = "") -> Rule:
    """Whole numbers from ``least`` to ``most``."""
    return Rule(f"a whole number from {least} to {most}{why}", lambda value: least <= value <= most)


def share(least: float, most: float, what: str = "a share", hint: str = "") -> Rule:
    """Numbers from ``least`` to ``most``."""
    return Rule(f"{what} from {least:g} to {most:g}", lambda value: least <= value <= most, hint)


def all_rules(kind: type) -> dict[str, Rule]:
    """The rules of a class of configs: its own, and those of the classes it is made from."""
    classes = reversed(kind.__mro__)
    return {name: rule for each in classes for name, rule in vars(each).get("rules", {}).items()}


def check_numbers(config: object, named: Callable[[str], str] = str) -> None:
    """Apply all rules to a config; ``named`` is what a field is called in messages."""
    for name, rule in all_rules(type(config)).items():
        rule.check(named(name), getattr(config, name))


def check_below(argument: str, value: int, other: str, limit: int) -> None:
    """Two numbers of which one must be smaller, so that something is left over."""
    if value >= limit:
        fail(argument, f"must be less than {other}, {limit}", value)


COUNT = at_least(1)
COUNT_OR_ZERO = at_least(0)
ABOVE_ZERO = Rule("positive and finite", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = Rule("a finite number of at least 0", lambda value: 0 <= value < math.inf)
SHARE = Rule("a share above 0 and below 1", lambda value: 0 < value < 1)
SHARE_OR_ALL = Rule("a share above 0 and at most 1", lambda value: 0 < value <= 1)
