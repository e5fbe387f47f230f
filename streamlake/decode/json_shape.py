"""What the JSON objects of one producer have in common: everything but their values.

A program writes its records with the same fields in the same order and spacing. Such a record is a chain of constant
runs (`{"id": `, `, "name": "`) with values between them, and because a value holds no quotation mark of its own here,
the marks of a record tell where every run must be. `Shape.match` finds the records of a block that are so, for all of
them at once; `shaped_columns` makes columns of the values. Other records are left to the general reader.

Invariant: a record that matches is its shape's record with other values: where that was one valid object, and the values
are valid (texts are, scalars are for the caller to check), so is the record, with the same fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamlake.decode.json_values import parse_object

_Array = Any
Path = tuple[str, ...]

_TOKEN = re.compile(rb'"([^"]*)"|([-+.\w]+)|([{}\[\]:,])')
_SCALAR = re.compile(rb"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
QUOTE = ord('"')


@dataclass(frozen=True)
class Run:
    """Bytes that all records of a shape have in the same place between two values.

    `anchor` is the number of the quotation mark, among those of the record, that lies `inset` bytes into the run; None
    for a run without any, the last, whose `inset` is its length. `others`: the further marks in it, as (number, inset).
    """

    text: bytes
    anchor: int | None
    inset: int
    others: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Matches:
    """Records of a block that have a shape: their numbers (None: all of them), and per value of the shape where it begins
    and ends in the block's bytes."""

    rows: _Array | None
    begins: Sequence[_Array]
    ends: Sequence[_Array]


@dataclass(frozen=True)
class Shape:
    """`runs` has one more than there are values. `values`: path of a field -> (number of the value, whether it is a text);
    `objects` are the paths of fields that are objects."""

    runs: tuple[Run, ...]
    values: dict[Path, tuple[int, bool]]
    objects: frozenset[Path]
    quotes: int

    def match(self, data: _Array, offsets: _Array, quotes: _Array, excluded: _Array | None) -> Matches:
        """The records (bytes `offsets`[i] to `offsets`[i + 1] of `data`) that have this shape.

        `quotes` are the places of all quotation marks; `excluded` (boolean) the records that are out of the question.
        """
        rows, marks = self._candidates(offsets, quotes, excluded)
        begin = offsets[:-1] if rows is None else offsets[rows]
        end = offsets[1:] if rows is None else offsets[rows + 1]
        starts = [
            end - run.inset if run.anchor is None else marks[:, run.anchor] - run.inset for run in self.runs
        ]
        fits = (starts[0] == begin) & (starts[-1] + len(self.runs[-1].text) == end)
        for run, start in zip(self.runs, starts, strict=True):
            for number, inset in run.others:
                fits &= marks[:, number] == start + inset
        texts = dict(self.values.values())
        for number, (run, start, follows) in enumerate(zip(self.runs, starts, starts[1:], strict=False)):
            fits &= follows - start >= len(run.text) + (0 if texts[number] else 1)
        rows, starts = _kept(rows, starts, fits)
        if not len(starts[0]):
            return Matches(np.empty(0, dtype=np.int64), starts[1:], starts[1:])
        fits = np.ones(len(starts[0]), dtype=bool)
        for run, start in zip(self.runs, starts, strict=True):
            size = len(run.text)
            windows: _Array = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
            found = windows[start].view(np.uint8).reshape(-1, size)
            same = found == np.frombuffer(run.text, dtype=np.uint8)
            if not same.all():
                fits &= same.all(axis=1)
        rows, starts = _kept(rows, starts, fits)
        begins = [start + len(run.text) for run, start in zip(self.runs, starts[:-1], strict=False)]
        return Matches(rows, begins, starts[1:])

    def _candidates(
        self, offsets: _Array, quotes: _Array, excluded: _Array | None
    ) -> tuple[_Array | None, _Array]:
        """The records with as many quotation marks as the shape has (None: all), and (records, marks) their places."""
        count = len(offsets) - 1
        if excluded is None and len(quotes) == count * self.quotes:
            marks = quotes.reshape(count, self.quotes)
            if (marks[:, 0] >= offsets[:-1]).all() and (marks[:, -1] < offsets[1:]).all():
                return None, marks
        bounds: _Array = np.searchsorted(quotes, offsets)
        fits = np.diff(bounds) == self.quotes
        if excluded is not None:
            fits &= ~excluded
        rows = np.flatnonzero(fits)
        return rows, quotes[bounds[rows][:, None] + np.arange(self.quotes)]


def shape_of(record: bytes) -> Shape | None:
    """The shape of a record, None where it has none: it is no JSON object, has arrays or escaped letters, or a name twice."""
    try:
        parse_object(record)
    except ValueError:
        return None
    if b"\\" in record or min(record) < 32:
        return None
    path: list[str | None] = []
    spans: list[tuple[int, int]] = []
    values: dict[Path, tuple[int, bool]] = {}
    seen: set[Path] = set()
    objects: set[Path] = set()
    after_colon = False
    for token in _TOKEN.finditer(record):
        text, scalar, mark = token.groups()
        where = tuple(name for name in path if name is not None)
        if mark == b"[" or (scalar is not None and _SCALAR.fullmatch(scalar) is None):
            return None
        if mark == b"{":
            objects.add(where)
            path.append(None)
        elif mark == b"}":
            path.pop()
        elif text is not None and not after_colon:
            path[-1] = text.decode()
            where = tuple(name for name in path if name is not None)
            if where in seen:
                return None
            seen.add(where)
        elif mark is None:
            values[where] = len(spans), text is not None
            spans.append(token.span(1) if text is not None else token.span())
        after_colon = mark == b":"
    if not spans:
        return None
    return Shape(_runs(record, spans), values, frozenset(objects), record.count(b'"'))


def _runs(record: bytes, spans: list[tuple[int, int]]) -> tuple[Run, ...]:
    runs = []
    marks = [at for at, letter in enumerate(record) if letter == QUOTE]
    begins = [0, *(end for _, end in spans)]
    ends = [*(begin for begin, _ in spans), len(record)]
    for begin, end in zip(begins, ends, strict=True):
        inside = [(number, at - begin) for number, at in enumerate(marks) if begin <= at < end]
        anchor, inset = inside[0] if inside else (None, end - begin)
        runs.append(Run(record[begin:end], anchor, inset, tuple(inside[1:])))
    return tuple(runs)


def _kept(rows: _Array | None, starts: list[_Array], fits: _Array) -> tuple[_Array | None, list[_Array]]:
    if fits.all():
        return rows, starts
    kept = np.flatnonzero(fits)
    return kept if rows is None else rows[kept], [start[kept] for start in starts]
