"""Converts literals of a filter to values of a column's type, exactly.

A literal may lie between two values of a column (`1.5` for an int column, noon for a date column, `0.001` for
decimal(9, 2)) or outside of its range. Then it is not rounded: the comparison moves to the nearest value that
gives the same answer. `id > 1.5` becomes `id >= 2`, `id = 1.5` becomes false. Only `float` and `double`
round, to the nearest value of the column's width.
"""

from __future__ import annotations

import math
import re
import struct
import uuid
from datetime import date, datetime, time, timezone
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from streamlake.spec.expressions.expressions import Operation
from streamlake.spec.types.data_types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
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
from streamlake.spec.types.values import EPOCH, EPOCH_DATE, parse_date, parse_time, parse_timestamp_ns, scaled

_OFFSET = re.compile(r"[T ].*(Z|z|[+-]\d\d(:?\d\d)?)$")
_DAY_NS = 86_400_000_000_000
_ZONED = (TimestamptzType, TimestamptzNsType)
_INSTANTS = (TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType)
_NANOS = (TimestampNsType, TimestamptzNsType)
_FLOAT_MAX = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]

NUMBER_LIKE = (IntegerType, LongType, DecimalType, DateType, TimeType, *_INSTANTS)
FLOATS = (FloatType, DoubleType)
COMPARABLE = (*NUMBER_LIKE, *FLOATS, BooleanType, StringType, UUIDType, FixedType, BinaryType)

# (operation, value) after snapping. The operation None means "never", NOT_NULL means "always, when not null".
Snapped = tuple[Operation | None, Any]


class LiteralMismatch(ValueError):
    """A literal that cannot be compared with the column's type. The message is the reason."""


def snap(op: Operation, literal: Any, type_: IcebergType) -> Snapped:
    """The comparison on values of `type_` that is true for the same rows as `op literal`.

    Raises LiteralMismatch.
    """
    literal = _plain(literal)
    if isinstance(type_, FLOATS):
        return _snap_float(op, _float(literal, type_), type_)
    if isinstance(type_, NUMBER_LIKE):
        low, high = _limits(type_)
        return _snap_units(op, _units(literal, type_), low, high, type_)
    return op, _other(literal, type_)


def _plain(literal: Any) -> Any:
    """A numpy scalar (anything with `item()` and `dtype`) as a plain Python value."""
    return literal.item() if hasattr(literal, "dtype") and hasattr(literal, "item") else literal


def _snap_units(
    op: Operation, units: int | Fraction | float, low: int, high: int, type_: IcebergType
) -> Snapped:
    if units > high or units != units:
        return _beyond(op, above=True)
    if units < low:
        return _beyond(op, above=False)
    floor = math.floor(units)
    if floor == units:
        return op, _from_units(floor, type_)
    if op in (Operation.LT, Operation.LT_EQ):
        return Operation.LT_EQ, _from_units(floor, type_)
    if op in (Operation.GT, Operation.GT_EQ):
        return Operation.GT_EQ, _from_units(floor + 1, type_)
    return (None if op == Operation.EQ else Operation.NOT_NULL), None


def _beyond(op: Operation, *, above: bool) -> Snapped:
    always = (Operation.LT, Operation.LT_EQ) if above else (Operation.GT, Operation.GT_EQ)
    return (Operation.NOT_NULL if op in always or op == Operation.NOT_EQ else None), None


def _limits(type_: IcebergType) -> tuple[int, int]:
    if isinstance(type_, (IntegerType, DateType)):
        return -(2**31), 2**31 - 1
    if isinstance(type_, DecimalType):
        top = 10**type_.precision - 1
        return -top, top
    if isinstance(type_, TimeType):
        return 0, 86_400_000_000 - 1
    return -(2**63), 2**63 - 1


def _from_units(units: int, type_: IcebergType) -> Any:
    return scaled(units, type_.scale) if isinstance(type_, DecimalType) else units


def _units(literal: Any, type_: IcebergType) -> int | Fraction | float:
    """The literal's position on the number line whose integers are the column's values."""
    if isinstance(type_, (IntegerType, LongType)):
        return _number(literal)
    if isinstance(type_, DecimalType):
        number = _number(literal)
        return number if isinstance(number, float) else number * int(10**type_.scale)
    if isinstance(type_, TimeType):
        return _time(literal)
    nanos, zoned = _instant(literal)
    if zoned and not isinstance(type_, _ZONED):
        raise LiteralMismatch("it has a time zone offset, the column has none")
    if isinstance(type_, DateType):
        return Fraction(nanos, _DAY_NS)
    return nanos if isinstance(type_, _NANOS) else Fraction(nanos, 1000)


def _number(literal: Any) -> int | Fraction | float:
    """An exact number, or an infinity or NaN."""
    if isinstance(literal, str):
        try:
            literal = Decimal(literal.strip())
        except InvalidOperation:
            raise LiteralMismatch("it is not a number") from None
    if isinstance(literal, bool) or not isinstance(literal, (int, float, Decimal, Fraction)):
        raise LiteralMismatch("it is not a number")
    if isinstance(literal, (float, Decimal)) and not math.isfinite(literal):
        return float(literal)
    # A float stands for the decimal that it is printed as: 0.1 is a tenth.
    return literal if isinstance(literal, int) else Fraction(str(literal))


def _float(literal: Any, type_: IcebergType) -> float:
    number = _number(literal)
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _snap_float(op: Operation, value: float, type_: IcebergType) -> Snapped:
    if value != value:
        return _snap_nan(op)
    if isinstance(type_, DoubleType) or math.isinf(value):
        return op, value
    try:
        return op, struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        limit = math.copysign(_FLOAT_MAX, value)
        if op in (Operation.EQ, Operation.NOT_EQ):
            return (None if op == Operation.EQ else Operation.NOT_NULL), None
        if value > 0:
            return (Operation.LT_EQ if op in (Operation.LT, Operation.LT_EQ) else Operation.GT), limit
        return (Operation.LT if op in (Operation.LT, Operation.LT_EQ) else Operation.GT_EQ), limit


def _snap_nan(op: Operation) -> Snapped:
    """The comparison with NaN, which equals NaN and is greater than every other value.

    For IS_NAN and NOT_NAN the caller adds "and not null".
    """
    if op in (Operation.EQ, Operation.GT_EQ):
        return Operation.IS_NAN, None
    if op in (Operation.NOT_EQ, Operation.LT):
        return Operation.NOT_NAN, None
    return (Operation.NOT_NULL if op == Operation.LT_EQ else None), None


def _time(literal: Any) -> int:
    try:
        if isinstance(literal, str):
            return parse_time(literal.strip())
        if isinstance(literal, time) and literal.tzinfo is None:
            return parse_time(literal.isoformat())
    except ValueError:
        pass
    raise LiteralMismatch("it is not a time of day such as '22:31:08.123456'")


def _instant(literal: Any) -> tuple[int, bool]:
    """Nanoseconds since the epoch, and whether the literal has an offset (then the instant is exact)."""
    if isinstance(literal, datetime):
        zoned = literal.tzinfo is not None
        naive = (
            literal.astimezone(timezone.utc).replace(tzinfo=None) if zoned else literal.replace(tzinfo=None)
        )
        delta = naive - EPOCH
        seconds = delta.days * 86_400 + delta.seconds
        return seconds * 10**9 + delta.microseconds * 1000 + int(getattr(literal, "nanosecond", 0)), zoned
    if isinstance(literal, date):
        return (literal - EPOCH_DATE).days * _DAY_NS, False
    if isinstance(literal, str):
        text = literal.strip()
        try:
            if len(text) == 10:
                return parse_date(text) * _DAY_NS, False
            return parse_timestamp_ns(text), _OFFSET.search(text) is not None
        except (ValueError, OverflowError):
            pass
    raise LiteralMismatch(
        "it is not a date or timestamp such as '2024-01-31' or '2024-01-31T22:31:08.123456'"
    )


def _other(literal: Any, type_: IcebergType) -> Any:
    if isinstance(type_, BooleanType):
        if isinstance(literal, str) and literal.lower() in ("true", "false"):
            return literal.lower() == "true"
        if isinstance(literal, bool):
            return literal
        raise LiteralMismatch("it is neither true nor false")
    if isinstance(type_, StringType):
        if isinstance(literal, str):
            return literal
        raise LiteralMismatch("it is not a string; put it in single quotes")
    if isinstance(type_, UUIDType):
        try:
            return literal if isinstance(literal, uuid.UUID) else uuid.UUID(literal)
        except (ValueError, AttributeError, TypeError):
            raise LiteralMismatch("it is not a uuid") from None
    if isinstance(type_, (FixedType, BinaryType)):
        if not isinstance(literal, (bytes, bytearray, memoryview)):
            raise LiteralMismatch("it is not binary; write x'00ff'")
        if isinstance(type_, FixedType) and len(literal) != type_.length:
            raise LiteralMismatch(f"it has {len(literal)} bytes, the column has {type_.length}")
        return bytes(literal)
    raise LiteralMismatch("columns of this type can be tested with 'is null' only")
