"""Source positions of Debezium's changes: the default `sequence_by`.

Each connector writes its position in other fields of "source". Invariant: of two changes of one key, the
later one has the higher sequence, or both have the same one and arrive in order (a key's delete and insert
of one statement). Rows that a snapshot read (op "r") get `read_at` of theirs.

| connector | sequence |
|---|---|
| postgresql | int64: `lsn` |
| mysql, mariadb | int64: number of the binlog `file` * 2**36 + `pos` (1) |
| sqlserver | int64: `commit_lsn` without its last part (2) |
| mongodb | int64: seconds of `ts_ms` * 2**32 + `ord` |
| others | int64: nanoseconds of `ts_ns`, else `ts_us`, else `ts_ms` |

(1) `row` starts again in each event of a compressed transaction, and these events have the same `pos`.
(2) This is a log block; within one, the order of arrival decides.

A record without these fields has no sequence (null).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.values.text_columns import NotBulkError, spread
from streamlake.formats.arrow.arrow_transforms import byte_strings
from streamlake.spec.types.data_types import LongType, NestedField, StringType

Array = np.ndarray[Any, Any]

_FILE_NUMBER = re.compile(r".*\.(\d+)")
_POSITION_BITS = 36
_FILE_BITS = 63 - _POSITION_BITS
_LSN = re.compile(r"([0-7][0-9a-fA-F]{7}):([0-9a-fA-F]{8}):[0-9a-fA-F]{4}")
_LSN_LENGTH = 22
_WHOLE = frozenset({"mysql", "mariadb", "sqlserver", "oracle", "db2", "informix", "mongodb"})
_LSN_DIGITS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16)
_DIGIT_VALUES: Array = np.zeros(256, dtype=np.int64)
for _digit in "0123456789abcdefABCDEF":
    _DIGIT_VALUES[ord(_digit)] = int(_digit, 16)


class Position(Protocol):
    """The source positions of one kind of connector."""

    fields: tuple[NestedField, ...]

    def column(self, source: pa.StructArray) -> pa.Array:
        """The sequences of (n,) "source" objects that were read as `fields`, int64. Raises NotBulkError."""

    def value(self, source: Mapping[str, Any]) -> int | None:
        """The sequence of one "source" object; None without one. Raises ValueError."""


def position_of(connector: str | None) -> Position:
    """The source position for a connector, as named in "source"; for an unknown one, the time."""
    return _TIMES if connector is None else _POSITIONS.get(connector, _TIMES)


def has_position(connector: str) -> bool:
    """Whether the connector writes a position in the database's log."""
    return connector in _POSITIONS


def sends_whole_rows(connector: str) -> bool:
    """Whether the connector's deletes carry the whole row; others may have only its key, and nulls."""
    return connector in _WHOLE


def read_at(sequence: int | None) -> int | None:
    """The sequence of a row that a snapshot read at this position: below 0, see ROW_SEQUENCE."""
    return None if sequence is None else ~sequence


def with_reads(sequence: pa.Array, op: pa.Array) -> pa.Array:
    """(n,) int64 sequences for (n,) operations, with `read_at` where a snapshot read the row."""
    reads = pc.equal(op, "r")
    if not pc.any(reads, min_count=0).as_py():
        return sequence
    return pc.if_else(reads.fill_null(False), pc.bit_wise_not(sequence), sequence)


def binlog_sequence(file: str | None, position: int) -> int:
    """An int64 that sorts as MySQL's binlog does.

    Raises ValueError for a file without a number or out of range.
    """
    number = file_number(file) if file else 0
    if not 0 <= position < 1 << _POSITION_BITS or number >= 1 << _FILE_BITS:
        raise ValueError(f"there is no binlog position {file}:{position}")
    return number << _POSITION_BITS | position


def binlog_sequences(file: pa.Array, position: pa.Array) -> pa.Array:
    """`binlog_sequence` of (n,) files and positions; null where the position is null. Raises NotBulkError."""
    files = file.dictionary_encode()
    try:
        numbers = [file_number(name) if name else 0 for name in files.dictionary.to_pylist()]
    except ValueError as error:
        raise NotBulkError from error
    bounds = pc.min_max(position)
    if max(numbers, default=0) >= 1 << _FILE_BITS or (
        bounds["min"].is_valid
        and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() < 1 << _POSITION_BITS
    ):
        raise NotBulkError
    number = pa.array(numbers, pa.int64()).take(files.indices).fill_null(0)
    return pc.bit_wise_or(pc.shift_left(number, _POSITION_BITS), position)


def file_number(file: str) -> int:
    """The number at the end of a binlog file's name ("mysql-bin.000003"). Raises ValueError."""
    match = _FILE_NUMBER.fullmatch(file)
    if match is None:
        raise ValueError(f"the binlog file '{file}' has no number at its end")
    return int(match[1])


class _Lsn:
    fields: tuple[NestedField, ...] = (NestedField(0, "lsn", LongType()),)

    def column(self, source: pa.StructArray) -> pa.Array:
        return source.field("lsn")

    def value(self, source: Mapping[str, Any]) -> int | None:
        return _number(source, "lsn")


class _Binlog:
    fields: tuple[NestedField, ...] = (
        NestedField(0, "file", StringType()),
        NestedField(0, "pos", LongType()),
    )

    def column(self, source: pa.StructArray) -> pa.Array:
        file, position = source.field("file"), source.field("pos")
        named = pc.fill_null(pc.not_equal(file, ""), False)
        return pc.if_else(named, binlog_sequences(file, position), None)

    def value(self, source: Mapping[str, Any]) -> int | None:
        position, file = _number(source, "pos"), _text(source, "file")
        # Positions start again in each file, so a position alone has no order.
        return None if position is None or not file else binlog_sequence(file, position)


class _SqlServer:
    fields: tuple[NestedField, ...] = (NestedField(0, "commit_lsn", StringType()),)

    def column(self, source: pa.StructArray) -> pa.Array:
        commit = source.field("commit_lsn")
        present = commit.drop_null()
        if not pc.all(pc.match_substring_regex(present, f"^{_LSN.pattern}$"), min_count=0).as_py():
            raise NotBulkError
        letters, _, _ = byte_strings(present)
        digits = _DIGIT_VALUES[letters.reshape(-1, _LSN_LENGTH)[:, _LSN_DIGITS]]
        found: Array = np.zeros(len(present), dtype=np.int64)
        for digit in digits.T:
            found = found << 4 | digit
        return spread(pa.array(found), commit)

    def value(self, source: Mapping[str, Any]) -> int | None:
        commit = _text(source, "commit_lsn")
        if commit is None:
            return None
        match = _LSN.fullmatch(commit)
        if match is None:
            raise ValueError(f"'source' has the LSN '{commit}', which is not an LSN of SQL Server")
        return int(match[1], 16) << 32 | int(match[2], 16)


class _OperationTime:
    fields: tuple[NestedField, ...] = (NestedField(0, "ts_ms", LongType()), NestedField(0, "ord", LongType()))

    def column(self, source: pa.StructArray) -> pa.Array:
        millis, order = source.field("ts_ms"), source.field("ord").fill_null(0)
        for array, limit in ((millis, 1_000 << 31), (order, 1 << 32)):
            bounds = pc.min_max(array)
            if bounds["min"].is_valid and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() < limit:
                raise NotBulkError
        return pc.bit_wise_or(pc.shift_left(pc.divide(millis, 1_000), 32), order)

    def value(self, source: Mapping[str, Any]) -> int | None:
        millis, order = _number(source, "ts_ms"), _number(source, "ord") or 0
        if millis is None:
            return None
        if not 0 <= millis < 1_000 << 31 or not 0 <= order < 1 << 32:
            raise ValueError(f"there is no operation time {millis} ms, {order}")
        return millis // 1_000 << 32 | order


class _Times:
    fields: tuple[NestedField, ...] = tuple(
        NestedField(0, name, LongType()) for name in ("ts_ns", "ts_us", "ts_ms")
    )
    _NANOS = (1, 1_000, 1_000_000)

    def column(self, source: pa.StructArray) -> pa.Array:
        try:
            scaled = [
                pc.multiply_checked(source.field(part.name), pa.scalar(nanos, pa.int64()))
                for part, nanos in zip(self.fields, self._NANOS, strict=True)
            ]
        except pa.ArrowInvalid as error:
            raise NotBulkError from error
        return pc.coalesce(*scaled)

    def value(self, source: Mapping[str, Any]) -> int | None:
        scaled = []
        for part, nanos in zip(self.fields, self._NANOS, strict=True):
            found = _number(source, part.name)
            if found is not None and not -(1 << 63) <= found * nanos < 1 << 63:
                raise ValueError(f"'source.{part.name}' is {found}, which is not a time")
            scaled.append(None if found is None else found * nanos)
        return next((found for found in scaled if found is not None), None)


_TIMES = _Times()
DOCUMENTS: Position = _OperationTime()
"""The position of MongoDB's connector, whose images are JSON documents in strings."""
_POSITIONS: dict[str, Position] = {
    "postgresql": _Lsn(),
    "mysql": _Binlog(),
    "mariadb": _Binlog(),
    "sqlserver": _SqlServer(),
    "mongodb": DOCUMENTS,
}


def _number(source: Mapping[str, Any], name: str) -> int | None:
    found = source.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not -(1 << 63) <= found < 1 << 63:
        raise ValueError(f"'source.{name}' is no whole number")
    return found


def _text(source: Mapping[str, Any], name: str) -> str | None:
    found = source.get(name)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"'source.{name}' is no text")
    return found
