"""How large, deep and wide a record may be: the `record.*` options, parsed once.

A record beyond a limit is a damaged one: a reject with its offset, or a DecodeError. The limits keep readers that recurse from
the end of their stack, and one record from taking the memory of all. They hold for what is decoded within `applied`, on
this thread, whatever reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import InvalidOptionError
from streamlake.options import check_option_names
from streamlake.records import MAX_RECORD_BYTES

PREFIX = "record."
_BOUNDS = {"max-bytes": (1, 1 << 30), "max-depth": (1, 200), "max-fields": (1, 1_000_000)}
"""The values of each option. Deeper than 200, Python's own recursion would end where the limit should."""
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
"""A text, up to the end where it does not end: each letter is looked at once, whatever they are."""
_OPEN, _CLOSE = ord("{"), ord("}")
_CURLY = _OPEN ^ ord("[")


@dataclass(frozen=True)
class RecordLimits:
    """`max_bytes` of a value or a key. In JSON: `max_depth` of objects and arrays inside of each other, `max_fields` of one
    object."""

    max_bytes: int = MAX_RECORD_BYTES
    max_depth: int = 128
    max_fields: int = 10_000

    @staticmethod
    def of(options: Mapping[str, str]) -> RecordLimits:
        """Those that the `record.*` entries among the options of a format say. Raises InvalidOptionError."""
        own = {name: value for name, value in options.items() if name.startswith(PREFIX)}
        check_option_names(own, [PREFIX + name for name in _BOUNDS], "records")
        found = {}
        for part in fields(RecordLimits):
            name = part.name.replace("_", "-")
            text = own.get(PREFIX + name)
            if text is not None:
                least, most = _BOUNDS[name]
                if not text.strip().isdecimal() or not least <= int(text) <= most:
                    raise InvalidOptionError(
                        f"{PREFIX}{name} is '{text}'; it must be a whole number from {least} to {most}"
                    )
                found[part.name] = int(text)
        return RecordLimits(**found)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """These are the limits of what is decoded inside."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def require_depth(self, text: bytes) -> None:
        """Raises ValueError for a JSON text that is nested too deeply."""
        if text.count(b"{") + text.count(b"[") > self.max_depth and _depth(text) > self.max_depth:
            raise ValueError(f"it is nested too deeply: {PREFIX}max-depth is {self.max_depth}")

    def suspect(self, values: pa.Array) -> int | None:
        """The first of the JSON texts, a binary array without nulls, that may be beyond the limits of depth and fields. One that
        is nested too deeply always is."""
        sizes = np.asarray(pc.binary_length(values))
        rows = np.flatnonzero(sizes > 2 * self.max_depth)
        if not len(rows):
            return None
        chosen = values.take(pa.array(rows))
        bounds = np.frombuffer(chosen.buffers()[1], dtype=np.int32)[: len(chosen) + 1]
        data = np.frombuffer(chosen.buffers()[2], dtype=np.uint8)
        opening = np.searchsorted(np.flatnonzero((data | _CURLY) == _OPEN), bounds)
        for at in np.flatnonzero((np.diff(opening) > self.max_depth) | (sizes[rows] > 4 * self.max_fields)):
            text = chosen[int(at)].as_py()
            if text.count(b":") > self.max_fields or _depth(text) > self.max_depth:
                return int(rows[at])
        return None

    def too_large(self, raw: pa.RecordBatch) -> dict[int, str]:
        """{place: why it is refused} of the records of a batch of schema RAW_RECORDS whose value or key has too many bytes."""
        found = {}
        for part, what in (("key", "its key"), ("value", "it")):
            sizes = pc.binary_length(raw.column(part))
            most = pc.max(sizes).as_py()
            if most is None or most <= self.max_bytes:
                continue
            reason = f"{what} has more bytes than {PREFIX}max-bytes allows, {self.max_bytes}"
            large = np.asarray(pc.greater(pc.fill_null(sizes, 0), self.max_bytes))
            found.update(dict.fromkeys(np.flatnonzero(large).tolist(), reason))
        return found


_CURRENT: ContextVar[RecordLimits] = ContextVar("record_limits", default=RecordLimits())  # noqa: B039


def current_limits() -> RecordLimits:
    """The limits that apply here; the defaults where none were applied."""
    return _CURRENT.get()


def without_limits(options: Mapping[str, str]) -> dict[str, str]:
    """A format's options without those of records."""
    return {name: value for name, value in options.items() if not name.startswith(PREFIX)}


def _depth(text: bytes) -> int:
    """How deep objects and arrays of a JSON text are inside of each other."""
    curly = np.frombuffer(_TEXTS.sub(b"", text), dtype=np.uint8) | _CURLY
    brackets = curly[(curly == _OPEN) | (curly == _CLOSE)]
    return int(np.cumsum(np.where(brackets == _OPEN, 1, -1)).max(initial=0))
