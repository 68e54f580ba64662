"""The rows of a table in compact form, in memory or, if they are many, in a file.

Numbers take four bytes where that is exact and eight otherwise, categories two. One-hot columns are made on access, so
ten million rows of forty columns take about a gigabyte of disk and no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from directloss.tabular.columns import CATEGORY, DATE, PARTS, Survey, numbers_of, words_of
from directloss.tabular.encoding import MISSING, CategoryColumn, Encoder, NumberColumn, learn_categories, learn_numbers

WORDS = 2**16 - 1
"""Distinct words per column; later ones count as rare."""
IN_MEMORY = 2**28
"""Rows that take more bytes than this go to a file."""
AT_ONCE = 2**18
"""Records read at once to learn from one of their fields."""
SPREAD = 8
"""Rows within this many times their number are read together with those in between."""

Array = npt.NDArray[Any]


@dataclass
class Store:
    """All rows as records with one field per column."""

    kinds: dict[str, str]
    numeric: dict[str, bool]
    layout: list[tuple[str, str, tuple[int]]]
    path: Path | None
    words: dict[str, dict[str, int]] = field(default_factory=dict)
    """The index of each word, per column of categories."""
    _rows: Array | None = None
    """All records, if they are in memory."""
    moments: tuple[Array, Array] = field(default=(np.zeros(0), np.zeros(0)))
    """Mean and deviation of each encoded column, over the rows learnt from."""

    @classmethod
    def of(cls, batches: Iterable[pd.DataFrame], survey: Survey, kinds: Mapping[str, str], path: Path | None) -> Store:
        """The rows of all batches, in the file ``path`` if they are many."""
        layout = [(name, *_format(survey, name, kind)) for name, kind in kinds.items()]
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
        return np.array([*numbers, 0], dtype=np.uint16)[codes][:, None]  # -1 is the last, the missing word

    def take(self, which: npt.NDArray[np.int64]) -> Array:
        """Some records. The file is not mapped, because its pages would soon all count as memory of this process."""
        if self.path is None:
            assert self._rows is not None
            return np.asarray(self._rows[which])
        kind = np.dtype(self.layout)
        first, last = int(which.min()), int(which.max())
        if last - first < SPREAD * len(which):
            return self._between(first, last)[which - first]
        records = np.empty(len(which), dtype=kind)
        room = records.view(np.uint8).data
        with self.path.open("rb", buffering=0) as file:
            for place, row in enumerate((which * kind.itemsize).tolist()):
                file.seek(row)
                file.readinto(room[place * kind.itemsize : (place + 1) * kind.itemsize])
        return records

    def _field(self, name: str, which: npt.NDArray[np.int64]) -> Array:
        """One field of these records, which are in file order; read in blocks."""
        if self._rows is not None:
            return np.asarray(self._rows[name][which])
        parts = (which[start : start + AT_ONCE] for start in range(0, len(which), AT_ONCE))
        return np.concatenate([self._between(some[0], some[-1])[name][some - some[0]] for some in parts])

    def _between(self, first: int, last: int) -> Array:
        """The records of the file from the first to the last."""
        assert self.path is not None
        kind = np.dtype(self.layout)
        return np.fromfile(self.path, kind, int(last - first) + 1, offset=int(first) * kind.itemsize)

    def learn(self, which: npt.NDArray[np.int64], with_gaps: Sequence[str] = ()) -> Encoder:
        """Learn an encoder from these rows; ``with_gaps`` are the columns whose gaps are marked."""
        found = [
            self._learn_words(name, which)
            if kind == CATEGORY
            else self._learn_numbers(name, kind, which, name in with_gaps)
            for name, kind in self.kinds.items()
        ]
        columns, means, deviations = zip(*found, strict=True)
        self.moments = np.concatenate(means), np.concatenate(deviations)
        return Encoder(columns)

    def _learn_words(self, name: str, which: npt.NDArray[np.int64]) -> tuple[CategoryColumn, Array, Array]:
        rows = np.bincount(self._field(name, which)[:, 0], minlength=WORDS + 1)
        counts = {word: int(rows[number]) for word, number in self.words[name].items()}
        column = learn_categories(name, counts, self.numeric[name])
        column = replace(column, others=column.others or bool(rows[WORDS]))
        places = self.places(column)
        share = np.bincount(places[places >= 0], rows[places >= 0], minlength=column.width) / len(which)
        return column, share, np.sqrt(share * (1 - share))

    def _learn_numbers(
        self, name: str, kind: str, which: npt.NDArray[np.int64], marks: bool
    ) -> tuple[NumberColumn, Array, Array]:
        values = self._field(name, which).astype(np.float64)
        column = learn_numbers(name, kind, values, marks)
        filled = column.filled(values)
        return column, filled.mean(0), filled.std(0)

    def places(self, column: CategoryColumn) -> npt.NDArray[np.int64]:
        """The category index for each word index; words without an index are rare."""
        known = column.places(list(self.words[column.name]))
        rare = len(column.categories) if column.others else -1
        return np.append(known, np.full(WORDS + 1 - len(known), rare))


def _format(survey: Survey, name: str, kind: str) -> tuple[str, tuple[int]]:
    if kind == CATEGORY:
        return "u2", (1,)
    if kind == DATE:
        return "f8", (len(PARTS),)
    return ("f4" if survey.columns[name].in_float32 else "f8"), (1,)


@dataclass
class StoredRows:
    """Some rows of a store, encoded on access."""

    store: Store
    encoder: Encoder
    which: npt.NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of encoded columns."""
        return len(self.which), self.encoder.width

    @cached_property
    def _places(self) -> dict[str, npt.NDArray[np.int64]]:
        """See `Store.places`."""
        columns = (column for column in self.encoder.columns if isinstance(column, CategoryColumn))
        return {column.name: self.store.places(column) for column in columns}

    def _read(self, which: Any) -> list[Array]:
        records, places = self.store.take(self.which[which]), self._places
        return [places[name][records[name]] if name in places else records[name] for name in self.encoder.names]

    def __getitem__(self, which: Any) -> npt.NDArray[np.float64]:
        return self.encoder.spread(self._read(which))

    @property
    def moments(self) -> tuple[Array, Array]:
        """Mean and deviation of each column, over the rows learnt from."""
        return self.store.moments

    def scaled(self, which: Any, mean: Array, scale: Array) -> npt.NDArray[np.float32]:
        """``(self[which] - mean) / scale``, much faster."""
        return self.encoder.scaled(self._read(which), mean, scale)

    def part(self, which: npt.NDArray[np.int64]) -> StoredRows:
        """Some of these rows."""
        return StoredRows(self.store, self.encoder, self.which[which])
