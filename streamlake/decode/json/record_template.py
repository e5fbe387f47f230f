"""Record templates of JSON objects: what a producer's records have in common, all but the values.

A program writes its records with the same fields in the same order and spacing. Such a record is a chain of
constant runs (`{"id": `, `, "name": "`) with values between them. A value holds no quotation mark of its own
(except escaped ones, which do not count), so the quotation marks of a record show where every run must be.
`Shape.match` finds the records of a block with this template, for all of them at once; `template_columns`
makes columns of the values. Other records are left to the general reader.

Invariant: a record that matches is the template's record with other values. Where that was one valid object,
and the values are valid (the caller checks scalars and escapes), so is the record, with the same fields.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.json.json_values import parse_object
from streamlake.decode.values.quotes_and_escapes import BACKSLASH, find_quotes, leads, unusual
from streamlake.decode.values.text_columns import bytes_and_offsets

_Array = np.ndarray[Any, Any]
Path = tuple[str, ...]

_SPACE = ord(" ")
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"|([-+.\w]+)|([{}\[\]:,])')
_SCALAR = re.compile(rb"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """n records and the quotation marks that begin and end their texts.

    Record i has the bytes `offsets`[i] to `offsets`[i + 1] of `data`, and the quotation marks `firsts`[i] to
    `firsts`[i + 1] of `quote_positions`. `excluded` (n,): records with escapes of more than one letter or
    with control characters, or None.
    """

    data: _Array
    offsets: _Array
    quote_positions: _Array
    firsts: _Array
    excluded: _Array | None

    @staticmethod
    def of(values: pa.Array) -> Block:
        """The block of a binary array without nulls."""
        data, offsets = bytes_and_offsets(values)
        lead = leads(np.flatnonzero(data == BACKSLASH))
        quote_positions = find_quotes(data, lead)
        excluded: _Array | None = None
        others = unusual(data, lead)
        if len(data) and data.min() < _SPACE:
            others = np.concatenate([others, np.flatnonzero(data < _SPACE)])
        if len(others):
            excluded = np.zeros(len(values), dtype=bool)
            excluded[np.searchsorted(offsets, others, side="right") - 1] = True
        return Block(data, offsets, quote_positions, np.searchsorted(quote_positions, offsets), excluded)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def quotes(self) -> _Array:
        """(n,): how many quotation marks each record has."""
        return np.diff(self.firsts)


@dataclass(frozen=True)
class Run:
    """Bytes that all records of a template have in the same place between two values.

    `anchor` is the number, within the record, of the quotation mark that lies `inset` bytes into the run. It
    is None for a run without any, the last one, whose `inset` is its length.
    """

    text: bytes
    anchor: int | None
    inset: int


@dataclass(frozen=True)
class Matches:
    """Records of a block that match a template: their numbers `rows` (n,), and bounds of its m values.

    `begins` and `ends`, (m, n) each, are positions in the block's bytes.
    """

    rows: _Array
    begins: _Array
    ends: _Array


@dataclass(frozen=True)
class RecordTemplate:
    """One record template. `runs` has one more entry than there are values.

    `values`: path of a field -> (number of the value, whether it is a text). `objects` are the paths of
    fields that are objects.
    """

    runs: tuple[Run, ...]
    values: dict[Path, tuple[int, bool]] = field(compare=False)
    objects: frozenset[Path]
    quotes: int

    def match(self, block: Block, rows: _Array) -> Matches:
        """The records among `rows` of a block that match this template.

        A run stands at the quotation mark that follows those of the run before it, and holds no others than
        its own. So there are none in the value between the two.
        """
        rows = rows[block.quotes[rows] == self.quotes]
        end = block.offsets[1:][rows]
        starts: _Array = np.empty((len(self.runs), len(rows)), dtype=np.int64)
        anchored = len(self._anchors)
        starts[:anchored] = block.quote_positions[block.firsts[:-1][rows] + self._anchors]
        starts[anchored:] = end
        starts -= self._insets
        fits = (np.diff(starts, axis=0) >= self._least).all(axis=0)
        fits &= (starts[0] == block.offsets[:-1][rows]) & (starts[-1] + len(self.runs[-1].text) == end)
        if not fits.all():
            rows, starts = rows[fits], starts[:, fits]
        for number, run in enumerate(self.runs):
            stands = _stands(block.data, starts[number], run.text)
            if not stands.all():
                rows, starts = rows[stands], starts[:, stands]
        return Matches(rows, starts[:-1] + self._sizes, starts[1:])

    @cached_property
    def _anchors(self) -> _Array:
        return np.array([[run.anchor] for run in self.runs if run.anchor is not None])

    @cached_property
    def _insets(self) -> _Array:
        return np.array([[run.inset] for run in self.runs])

    @cached_property
    def _sizes(self) -> _Array:
        """(m, 1): the bytes of the run before each value."""
        return np.array([[len(run.text)] for run in self.runs[:-1]])

    @cached_property
    def _least(self) -> _Array:
        """(m, 1): the minimum bytes from a run to the next one; a scalar has at least one letter."""
        texts = dict(self.values.values())
        result: _Array = self._sizes + np.array(
            [[0 if texts[number] else 1] for number in range(len(self.runs) - 1)]
        )
        return result


def _stands(data: _Array, start: _Array, text: bytes) -> _Array:
    """(n,) bool: at which positions in `data`, all of them inside it, the text stands."""
    size = len(text)
    if not len(start):
        return np.ones(0, dtype=bool)
    windows: _Array = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
    found = windows[start].view(np.uint8)
    # Usually all are alike, which is found fastest by comparing each with the one before it.
    if found[:size].tobytes() == text and (found[size:] == found[:-size]).all():
        return np.ones(len(start), dtype=bool)
    result: _Array = (found.reshape(-1, size) == np.frombuffer(text, dtype=np.uint8)).all(axis=1)
    return result


def template_of(record: bytes) -> RecordTemplate | None:
    """The template of a record; None where it has none.

    That is so for a value that is not a JSON object, for arrays, for names with escaped letters, and for a
    name that comes twice.
    """
    try:
        parse_object(record)
    except ValueError:
        return None
    if min(record) < _SPACE:
        return None
    path: list[str | None] = []
    spans: list[tuple[int, int]] = []
    values: dict[Path, tuple[int, bool]] = {}
    quote_positions: list[int] = []
    seen: set[Path] = set()
    objects: set[Path] = set()
    after_colon = False
    for token in _TOKEN.finditer(record):
        text, scalar, mark = token.groups()
        where = tuple(name for name in path if name is not None)
        if text is not None:
            quote_positions += token.start(), token.end() - 1
        if mark == b"[" or (scalar is not None and _SCALAR.fullmatch(scalar) is None):
            return None
        if mark == b"{":
            objects.add(where)
            path.append(None)
        elif mark == b"}":
            path.pop()
        elif text is not None and not after_colon:
            if b"\\" in text:
                return None
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
    return RecordTemplate(
        _runs(record, spans, quote_positions), values, frozenset(objects), len(quote_positions)
    )


def _runs(record: bytes, spans: list[tuple[int, int]], quote_positions: list[int]) -> tuple[Run, ...]:
    runs = []
    begins = [0, *(end for _, end in spans)]
    ends = [*(begin for begin, _ in spans), len(record)]
    for begin, end in zip(begins, ends, strict=True):
        number = bisect_left(quote_positions, begin)
        is_in = number < len(quote_positions) and quote_positions[number] < end
        anchor, inset = (number, quote_positions[number] - begin) if is_in else (None, end - begin)
        runs.append(Run(record[begin:end], anchor, inset))
    return tuple(runs)
