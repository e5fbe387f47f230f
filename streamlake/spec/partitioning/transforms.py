"""Partition transforms of single values (spec: Partition Transforms; Appendix B: 32-bit Hash Requirements).

The versions for whole Arrow arrays are in `formats.arrow_transforms` and are tested against these.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.spec.types.data_types import (
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
from streamlake.spec.types.values import (
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
    """The hash of a non-null value (Appendix B).

    Raises FeatureUnsupportedError for types that have no hash.
    """
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
        """Whether a column of type `source` can be a source of the transform."""
        raise NotImplementedError

    def apply(self, value: Any, source: IcebergType) -> Any:
        """The partition value of a source value of type `source`."""
        raise NotImplementedError

    def human(self, value: Any, source: IcebergType) -> str:
        """The text of a partition value in a hive-style path, before URL encoding."""
        return human_value(value, self.result_type(source))


@dataclass(frozen=True)
class Identity(Transform):
    """The value itself, for primitive types except geometry, geography and variant."""

    def result_type(self, source: IcebergType) -> IcebergType:
        """The source type."""
        return source

    def accepts(self, source: IcebergType) -> bool:
        """True for primitive types except geometry, geography and variant."""
        return source.is_primitive and str(source).partition("(")[0] not in (
            "geometry",
            "geography",
            "variant",
        )

    def apply(self, value: Any, source: IcebergType) -> Any:
        """The value itself."""
        return value


@dataclass(frozen=True)
class Bucket(Transform):
    """The hash of the value modulo `count`."""

    count: int

    def __str__(self) -> str:
        return f"bucket[{self.count}]"

    def result_type(self, source: IcebergType) -> IcebergType:
        """`int`."""
        return IntegerType()

    def accepts(self, source: IcebergType) -> bool:
        """True for the types whose values have a hash (Appendix B)."""
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
        """The bucket, 0 to `count` - 1."""
        return None if value is None else (hash_value(value, source) & 0x7FFFFFFF) % self.count


@dataclass(frozen=True)
class Truncate(Transform):
    """Numbers rounded down to a multiple of `width`, texts and binaries cut to `width`."""

    width: int

    def __str__(self) -> str:
        return f"truncate[{self.width}]"

    def result_type(self, source: IcebergType) -> IcebergType:
        """The source type."""
        return source

    def accepts(self, source: IcebergType) -> bool:
        """True for int, long, decimal, string and binary."""
        return isinstance(source, (IntegerType, LongType, DecimalType, StringType, BinaryType))

    def apply(self, value: Any, source: IcebergType) -> Any:
        """The rounded or cut value. The width of a decimal is in units of its scale."""
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
    """Year, month, day and hour: whole units since 1970-01-01, rounded down."""

    def result_type(self, source: IcebergType) -> IcebergType:
        """`int`."""
        return IntegerType()

    def accepts(self, source: IcebergType) -> bool:
        """True for date and all timestamp types."""
        return isinstance(source, (DateType, *_MICRO_TYPES, *_NANO_TYPES))

    def apply(self, value: Any, source: IcebergType) -> int | None:
        """Whole units since 1970-01-01."""
        return None if value is None else self._from_hours(_hours(value, source))

    def _from_hours(self, hours: int) -> int:
        raise NotImplementedError


def _hours(value: int, source: IcebergType) -> int:
    if isinstance(source, DateType):
        return value * 24
    return value // (3_600_000_000_000 if isinstance(source, _NANO_TYPES) else 3_600_000_000)


@dataclass(frozen=True)
class Year(_DateTimeTransform):
    """Years since 1970."""

    def _from_hours(self, hours: int) -> int:
        return (EPOCH + timedelta(hours=hours)).year - 1970

    def human(self, value: Any, source: IcebergType) -> str:
        """The year, such as "2024"."""
        return "null" if value is None else f"{value + 1970:04d}"


@dataclass(frozen=True)
class Month(_DateTimeTransform):
    """Months since January 1970."""

    def _from_hours(self, hours: int) -> int:
        at = EPOCH + timedelta(hours=hours)
        return (at.year - 1970) * 12 + at.month - 1

    def human(self, value: Any, source: IcebergType) -> str:
        """Year and month, such as "2024-01"."""
        return "null" if value is None else f"{value // 12 + 1970:04d}-{value % 12 + 1:02d}"


@dataclass(frozen=True)
class Day(_DateTimeTransform):
    """Days since 1970-01-01."""

    def result_type(self, source: IcebergType) -> IcebergType:
        """`date`."""
        return DateType()

    def _from_hours(self, hours: int) -> int:
        return hours // 24

    def human(self, value: Any, source: IcebergType) -> str:
        """The ISO date, such as "2024-01-31"."""
        return "null" if value is None else format_date(value)


@dataclass(frozen=True)
class Hour(_DateTimeTransform):
    """Hours since 1970-01-01 00:00."""

    def accepts(self, source: IcebergType) -> bool:
        """True for all timestamp types."""
        return isinstance(source, (*_MICRO_TYPES, *_NANO_TYPES))

    def _from_hours(self, hours: int) -> int:
        return hours

    def human(self, value: Any, source: IcebergType) -> str:
        """Date and hour, such as "2024-01-31-22"."""
        return "null" if value is None else f"{format_date(value // 24)}-{value % 24:02d}"


@dataclass(frozen=True)
class Void(Transform):
    """Always null: what remains of a partition field that was dropped from a table of version 1."""

    def result_type(self, source: IcebergType) -> IcebergType:
        """The source type."""
        return source

    def accepts(self, source: IcebergType) -> bool:
        """True for every type."""
        return True

    def apply(self, value: Any, source: IcebergType) -> None:
        """Always None."""
        return None

    def human(self, value: Any, source: IcebergType) -> str:
        """The text "null" for every value."""
        return "null"


@dataclass(frozen=True)
class UnknownTransform(Transform):
    """A transform of a later specification. Readers ignore it when pruning, writers refuse it."""

    text: str

    def __str__(self) -> str:
        return self.text

    def result_type(self, source: IcebergType) -> IcebergType:
        """`string`, because the real type is not known."""
        return StringType()

    def accepts(self, source: IcebergType) -> bool:
        """True for every type."""
        return True

    def apply(self, value: Any, source: IcebergType) -> Any:
        """Raises FeatureUnsupportedError."""
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
    """A transform from its text in metadata. Unknown text becomes `UnknownTransform`.

    Raises DataInvalidError for a bucket count or width below 1.
    """
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
    """A value as text in a partition path, before URL encoding."""
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
