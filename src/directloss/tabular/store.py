"""The rows of a table in compact form: in memory, or in a file if they are many.

Numbers take four bytes where that loses nothing and eight otherwise, categories two. One-hot columns are made when rows
are asked for, so that ten million rows of forty columns take about a gigabyte of disk and no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from directloss.integrations._rows import ENTRIES, statistics
from directloss.tabular.columns import CATEGORY, DATE, PARTS, Survey, numbers_of, words_of
from directloss.tabular.encoding import MISSING, CategoryColumn, Encoder, learn_categories, learn_numbers

WORDS = 2**16 - 1
"""Different words of a column that are told apart; what comes later counts as rare."""
IN_MEMORY = 2**28
"""Bytes from which on the rows are in a file."""
AT_ONCE = 2**18
"""Rows that are looked at in one go to learn from them."""
SPREAD = 8
"""Rows that lie in so many times their number are read together with what lies between them."""

Array = npt.NDArray[Any]


@dataclass
class Store:
    """Every row as one record, with a field for each column."""

    kinds: dict[str, str]
    numeric: dict[str, bool]
    layout: list[tuple[str, str, tuple[int]]]
    path: Path | None
    words: dict[str, dict[str, int]] = field(default_factory=dict)
    """Numbers of the words of each column of categories."""
    _rows: Array | None = None
    """All records, if they are in memory."""

    @classmethod
    def of(cls, batches: Iterable[pd.DataFrame], survey: Survey, kinds: Mapping[str, str], path: Path | None) -> Store:
        """The rows of all batches, in the file ``path`` if they are many."""
        layout = [(name, *_field(survey, name, kind)) for name, kind in kinds.items()]
        large = path is not None and survey.rows * np.dtype(layout).itemsize > IN_MEMORY
        numeric = {name: survey.columns[name].numeric for name in kinds}
        store = cls(dict(kinds), numeric, layout, path if large else None)
        store.words = {name: {MISSING: 0} for name, kind in kinds.items() if kind == CATEGORY}
        records = (store._records(batch) for batch in batches)
        if store.path is None:
            store._rows = np.concatenate(list(records))
        else:
            with store.path.open("wb") as file:
                for some in records:
                    file.write(some.tobytes())
        return store

    def _records(self, batch: pd.DataFrame) -> Array:
        records = np.empty(len(batch), dtype=self.layout)
        for name, kind in self.kinds.items():
            words = kind == CATEGORY
            records[name] = self._word_numbers(name, batch[name]) if words else numbers_of(batch[name], kind)
        return records

    def _word_numbers(self, name: str, column: pd.Series[Any]) -> Array:
        known = self.words[name]
        codes, words = words_of(column, self.numeric[name])
        numbers = [
            known.setdefault(word, len(known)) if len(known) < WORDS else known.get(word, WORDS) for word in words
        ]
        return np.array([*numbers, 0], dtype=np.uint16)[codes][:, None]  # -1 takes the last, the missing one

    def take(self, which: npt.NDArray[np.int64], name: str | None = None) -> Array:
        """Some records, or one field of them."""
        if self._rows is not None:
            return np.asarray(self._rows[which] if name is None else self._rows[name][which])
        records = self._load(which)
        return records if name is None else records[name]

    def _load(self, which: npt.NDArray[np.int64]) -> Array:
        """Records of the file. It is not mapped: its pages would count as ours, all of them after a few batches."""
        assert self.path is not None
        kind = np.dtype(self.layout)
        first, last = int(which.min()), int(which.max())
        if last - first < SPREAD * len(which):
            between = np.fromfile(self.path, kind, last - first + 1, offset=first * kind.itemsize)
            return between[which - first]
        records = np.empty(len(which), dtype=kind)
        room = records.view(np.uint8).data
        with self.path.open("rb", buffering=0) as file:
            for place, row in enumerate((which * kind.itemsize).tolist()):
                file.seek(row)
                file.readinto(room[place * kind.itemsize : (place + 1) * kind.itemsize])
        return records

    def blocks(self, which: npt.NDArray[np.int64], name: str) -> Iterator[Array]:
        """A field of these rows, some at a time."""
        for start in range(0, len(which), AT_ONCE):
            yield self.take(which[start : start + AT_ONCE], name)

    def learn(self, which: npt.NDArray[np.int64], with_gaps: Sequence[str] = ()) -> Encoder:
        """Statistics of these rows. ``with_gaps`` are the columns whose missing numbers are marked."""
        return Encoder(
            tuple(
                self._learn_words(name, which)
                if kind == CATEGORY
                else learn_numbers(name, kind, self._numbers(name, which), name in with_gaps)
                for name, kind in self.kinds.items()
            )
        )

    def _learn_words(self, name: str, which: npt.NDArray[np.int64]) -> CategoryColumn:
        rows = np.zeros(WORDS + 1, dtype=np.int64)
        for some in self.blocks(which, name):
            rows += np.bincount(some[:, 0], minlength=WORDS + 1)
        counts = {word: int(rows[number]) for word, number in self.words[name].items()}
        column = learn_categories(name, counts, self.numeric[name])
        return replace(column, others=column.others or bool(rows[WORDS]))

    def _numbers(self, name: str, which: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.concatenate(list(self.blocks(which, name))).astype(np.float64)


def _field(survey: Survey, name: str, kind: str) -> tuple[str, tuple[int]]:
    if kind == CATEGORY:
        return "u2", (1,)
    if kind == DATE:
        return "f8", (len(PARTS),)
    return ("f4" if survey.columns[name].in_float32 else "f8"), (1,)


@dataclass
class StoredRows:
    """Some rows of a store as an encoder makes them: a table of numbers that is made when it is looked at."""

    store: Store
    encoder: Encoder
    which: npt.NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of columns."""
        return len(self.which), self.encoder.width

    def __len__(self) -> int:
        return len(self.which)

    @cached_property
    def _places(self) -> dict[str, npt.NDArray[np.int64]]:
        """From the number of a word to the place of its category; words without a number are rare."""
        found = {}
        for column in self.encoder.columns:
            if isinstance(column, CategoryColumn):
                known = column.places(list(self.store.words[column.name]))
                rare = len(column.categories) if column.others else -1
                found[column.name] = np.append(known, np.full(WORDS + 1 - len(known), rare))
        return found

    def _read(self, which: Any) -> list[Array]:
        records, places = self.store.take(self.which[which]), self._places
        return [places[name][records[name]] if name in places else records[name] for name in self.encoder.names]

    def __getitem__(self, which: Any) -> npt.NDArray[np.float64]:
        return self.encoder.spread(self._read(which))

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """Mean and deviation of each column; of many rows block by block (Chan, Golub and LeVeque, 1983)."""
        if len(self) * self.shape[1] <= ENTRIES:
            return statistics(self[:])[:2]
        done, mean, squares = 0, np.zeros(self.shape[1]), np.zeros(self.shape[1])
        for start in range(0, len(self), AT_ONCE):
            values = self._read(slice(start, start + AT_ONCE))
            more, (own, deviation) = len(values[0]), self.encoder.moments(values)
            away = own - mean
            mean += away * (more / (done + more))
            squares += more * deviation**2 + away**2 * (done * more / (done + more))
            done += more
        return mean, np.sqrt(squares / done)

    def scaled(self, which: Any, mean: Array, scale: Array) -> npt.NDArray[np.float32]:
        """``(self[which] - mean) / scale``, in a fraction of the time."""
        return self.encoder.scaled(self._read(which), mean, scale)

    def part(self, which: npt.NDArray[np.int64]) -> StoredRows:
        """Some of these rows."""
        return StoredRows(self.store, self.encoder, self.which[which])
