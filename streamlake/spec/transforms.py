"""Partition transforms on single values (spec: Partition Transforms; Appendix B: 32-bit Hash Requirements).

The bulk versions over Arrow arrays are in `formats.arrow_transforms` and are tested against these.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.spec.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from streamlake.spec.values import (
    EPOCH,
    format_date,
    format_time,
    format_timestamp,
    format_timestamp_ns,
    minimal_bytes,
    scaled,
    unscaled,
    uuid_bytes,
)

_MICRO_TYPES = (TimestampType, TimestamptzType)
_NANO_TYPES = (TimestampNsType, TimestamptzNsType)
_MASK = 0xFFFFFFFF


def murmur3_32(data: bytes) -> int:
    """32-bit Murmur3, x86 variant, seed 0, as a signed int."""
    state = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        state ^= _mix(int.from_bytes(data[at : at + 4], "little"))
        state = (((state << 13) | (state >> 19)) * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        state ^= _mix(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _MASK
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state & 0x80000000 else state


def _mix(block: int) -> int:
    block = (block * 0xCC9E2D51) & _MASK
    block = ((block << 15) | (block >> 17)) & _MASK
    return (block * 0x1B873593) & _MASK


def hash_value(value: Any, type_: IcebergType) -> int:
    """The hash of a non-null value (Appendix B). Raises FeatureUnsupportedError for types that have none."""
    if isinstance(type_, (IntegerType, LongType, DateType, TimeType, *_MICRO_TYPES)):
        return murmur3_32(int(value).to_bytes(8, "little", signed=True))
    if isinstance(type_, _NANO_TYPES):
        return murmur3_32((value // 1000).to_bytes(8, "little", signed=True))
    if isinstance(type_, StringType):
        return murmur3_32(value.encode("utf-8"))
    if isinstance(type_, UUIDType):
        return murmur3_32(uuid_bytes(value))
    if isinstance(type_, (FixedType, BinaryType)):
        return murmur3_32(bytes(value))
    if isinstance(type_, DecimalType):
        return murmur3_32(minimal_bytes(unscaled(value, type_.scale)))
    raise FeatureUnsupportedError(f"the bucket transform is not defined for {type_}")


@dataclass(frozen=True)
class Transform:
    """A function from a source value to a partition value; None stays None."""

    def __str__(self) -> str:
        return type(self).__name__.lower()

    def result_type(self, source: IcebergType) -> IcebergType:
        """The type of `apply`'s result for a source of type `source`."""
        raise NotImplementedError

    def accepts(self, source: IcebergType) -> bool:
        raise NotImplementedError

    def apply(self, value: Any, source: IcebergType) -> Any:
        raise NotImplementedError

    def human(self, value: Any, source: IcebergType) -> str:
        """The text of a partition value in a hive-style path, before URL encoding."""
        return human_value(value, self.result_type(source))


@dataclass(frozen=True)
class Identity(Transform):
    def result_type(self, source: IcebergType) -> IcebergType:
        return source

    def accepts(self, source: IcebergType) -> bool:
        return source.is_primitive and str(source).partition("(")[0] not in (
            "geometry",
            "geography",
            "variant",
        )

    def apply(self, value: Any, source: IcebergType) -> Any:
        return value


@dataclass(frozen=True)
class Bucket(Transform):
    count: int

    def __str__(self) -> str:
        return f"bucket[{self.count}]"

    def result_type(self, source: IcebergType) -> IcebergType:
        return IntegerType()

    def accepts(self, source: IcebergType) -> bool:
        return isinstance(
            source,
            (
                IntegerType,
                LongType,
                DecimalType,
                DateType,
                TimeType,
                *_MICRO_TYPES,
                *_NANO_TYPES,
                StringType,
                UUIDType,
                FixedType,
                BinaryType,
            ),
        )

    def apply(self, value: Any, source: IcebergType) -> int | None:
        return None if value is None else (hash_value(value, source) & 0x7FFFFFFF) % self.count


@dataclass(frozen=True)
class Truncate(Transform):
    width: int

    def __str__(self) -> str:
        return f"truncate[{self.width}]"

    def result_type(self, source: IcebergType) -> IcebergType:
        return source

    def accepts(self, source: IcebergType) -> bool:
        return isinstance(source, (IntegerType, LongType, DecimalType, StringType, BinaryType))

    def apply(self, value: Any, source: IcebergType) -> Any:
        if value is None:
            return None
        if isinstance(source, DecimalType):
            number = unscaled(value, source.scale)
            return scaled(number - number % self.width, source.scale)
        if isinstance(source, (StringType, BinaryType)):
            return value[: self.width]
        return value - value % self.width


@dataclass(frozen=True)
class _DateTimeTransform(Transform):
    """Year, month, day and hour: distances from 1970-01-01 in whole units, rounded down."""

    def result_type(self, source: IcebergType) -> IcebergType:
        return IntegerType()

    def accepts(self, source: IcebergType) -> bool:
        return isinstance(source, (DateType, *_MICRO_TYPES, *_NANO_TYPES))

    def apply(self, value: Any, source: IcebergType) -> int | None:
        return None if value is None else self._from_hours(_hours(value, source))

    def _from_hours(self, hours: int) -> int:
        raise NotImplementedError


def _hours(value: int, source: IcebergType) -> int:
    if isinstance(source, DateType):
        return value * 24
    return value // (3_600_000_000_000 if isinstance(source, _NANO_TYPES) else 3_600_000_000)


@dataclass(frozen=True)
class Year(_DateTimeTransform):
    def _from_hours(self, hours: int) -> int:
        return (EPOCH + timedelta(hours=hours)).year - 1970

    def human(self, value: Any, source: IcebergType) -> str:
        return "null" if value is None else f"{value + 1970:04d}"


@dataclass(frozen=True)
class Month(_DateTimeTransform):
    def _from_hours(self, hours: int) -> int:
        at = EPOCH + timedelta(hours=hours)
        return (at.year - 1970) * 12 + at.month - 1

    def human(self, value: Any, source: IcebergType) -> str:
        return "null" if value is None else f"{value // 12 + 1970:04d}-{value % 12 + 1:02d}"


@dataclass(frozen=True)
class Day(_DateTimeTransform):
    def result_type(self, source: IcebergType) -> IcebergType:
        return DateType()

    def _from_hours(self, hours: int) -> int:
        return hours // 24

    def human(self, value: Any, source: IcebergType) -> str:
        return "null" if value is None else format_date(value)


@dataclass(frozen=True)
class Hour(_DateTimeTransform):
    def accepts(self, source: IcebergType) -> bool:
        return isinstance(source, (*_MICRO_TYPES, *_NANO_TYPES))

    def _from_hours(self, hours: int) -> int:
        return hours

    def human(self, value: Any, source: IcebergType) -> str:
        return "null" if value is None else f"{format_date(value // 24)}-{value % 24:02d}"


@dataclass(frozen=True)
class Void(Transform):
    """Always null: what remains of a partition field that was dropped from a v1 table."""

    def result_type(self, source: IcebergType) -> IcebergType:
        return source

    def accepts(self, source: IcebergType) -> bool:
        return True

    def apply(self, value: Any, source: IcebergType) -> None:
        return None

    def human(self, value: Any, source: IcebergType) -> str:
        return "null"


@dataclass(frozen=True)
class UnknownTransform(Transform):
    """A transform of a later specification: readers ignore it when pruning, writers refuse it."""

    text: str

    def __str__(self) -> str:
        return self.text

    def result_type(self, source: IcebergType) -> IcebergType:
        return StringType()

    def accepts(self, source: IcebergType) -> bool:
        return True

    def apply(self, value: Any, source: IcebergType) -> Any:
        raise FeatureUnsupportedError(
            f"the partition transform '{self.text}' is not known: it cannot be written"
        )


_SIMPLE: dict[str, Transform] = {
    "identity": Identity(),
    "year": Year(),
    "month": Month(),
    "day": Day(),
    "hour": Hour(),
    "void": Void(),
}
_WITH_WIDTH = re.compile(r"(bucket|truncate)\[(\d+)\]")


def parse_transform(text: str) -> Transform:
    """A transform from its text in metadata; one that is not known becomes `UnknownTransform`."""
    folded = text.strip().lower()
    if folded in _SIMPLE:
        return _SIMPLE[folded]
    if match := _WITH_WIDTH.fullmatch(folded):
        width = int(match[2])
        if width < 1:
            raise DataInvalidError(f"the transform '{text}' needs a width of at least 1")
        return Bucket(width) if match[1] == "bucket" else Truncate(width)
    return UnknownTransform(text)


def human_value(value: Any, type_: IcebergType) -> str:
    """A value as it reads in a partition path, before URL encoding."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(type_, DateType):
        return format_date(value)
    if isinstance(type_, TimeType):
        return format_time(value)
    if isinstance(type_, _MICRO_TYPES):
        return format_timestamp(value) + ("+00:00" if isinstance(type_, TimestamptzType) else "")
    if isinstance(type_, _NANO_TYPES):
        return format_timestamp_ns(value) + ("+00:00" if isinstance(type_, TimestamptzNsType) else "")
    if isinstance(type_, (FixedType, BinaryType)):
        return base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)
