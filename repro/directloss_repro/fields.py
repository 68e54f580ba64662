"""Types for the fields of configs and records, and the one place where pydantic's errors become the library's.

Numbers are strict: the string "3" and the boolean true are rejected. Integers are accepted as floats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn, Self, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from directloss._checks import DirectLossError, check_epsilon, fail, near

LARGEST = 1_000_000_000
"""The largest integer that a config allows."""

Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Word = Annotated[str, Strict(), Field(pattern=r"\S")]
Flag = Annotated[bool, Strict()]

Count = Annotated[Whole, Field(ge=1, le=LARGEST)]
CountOrZero = Annotated[Whole, Field(ge=0, le=LARGEST)]
AboveZero = Annotated[Number, Field(gt=0)]
NotNegative = Annotated[Number, Field(ge=0)]
Share = Annotated[Number, Field(gt=0, lt=1)]
ShareOrAll = Annotated[Number, Field(gt=0, le=1)]
Overlap = Annotated[Number, Field(ge=0, le=1)]


def _epsilon(value: float | str) -> float | str:
    check_epsilon(value)
    return value


Epsilon = Annotated[Annotated[float, Strict()] | Annotated[str, Strict()], AfterValidator(_epsilon)]

WORDS = {
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "string_type": "must be a word",
    "tuple_type": "must be a list",
    "string_pattern_mismatch": "must be a word",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be finite",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:.10g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:.10g}",
}
"""Our wording of pydantic's rules."""


class Frozen(BaseModel):
    """An immutable model that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="after")
    def _checked(self) -> Self:
        self.check()
        return self

    def check(self) -> None:
        """Raise if fields contradict each other. Subclasses call their parent's check first."""

    def but(self, **changes: Any) -> Self:
        """A copy with some fields replaced."""
        return type(self)(**{**dict(self), **changes})


Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], values: Mapping[str, Any], where: str) -> Model:
    """Build a model from plain data; errors name ``where`` and the key."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        _explain(error, values, where, model)


def _explain(error: ValidationError, values: Mapping[str, Any], where: str, model: type[BaseModel]) -> NoReturn:
    """Raise pydantic's first error in the library's format: key, rule, value, and a guess at what was meant."""
    found = error.errors(include_url=False)[0]
    kind, value, context = found["type"], found["input"], found.get("ctx", {})
    path = _path(found["loc"], values)
    if kind == "extra_forbidden":
        for name in path[:-1]:
            model = cast(type[BaseModel], model.model_fields[name].annotation)
        hint = near(path[-1], list(model.model_fields)) or f"Known: {', '.join(model.model_fields)}."
        fail(f"{where} key", "must be a known one", repr(".".join(path)), hint)
    if kind == "missing":
        fail(where, "must have every key", f"without {found['loc'][-1]}")
    if kind == "value_error":  # from a `check` of ours
        own = context["error"]
        raise (own if isinstance(own, DirectLossError) else DirectLossError(f"{where} {own}")) from None
    rule = WORDS.get(kind, found["msg"].replace("Input should", "must")).format_map(context)
    choices = re.findall(r"'([^']*)'", context["expected"]) if kind == "literal_error" else []
    fail(f"{where} {'.'.join(path)}", rule, repr(value), near(value, choices))


def _path(places: tuple[int | str, ...], values: Any) -> list[str]:
    """The keys that lead to a location, without list positions and pydantic's tags of union members."""
    path = []
    for place in places:
        if isinstance(values, Mapping) and place in values:
            path.append(str(place))
            values = values[place]
    return path
