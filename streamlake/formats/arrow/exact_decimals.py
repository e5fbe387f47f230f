"""Conversion of numbers to decimals, exact or refused.

All whole numbers, decimals and digit strings become the decimals of a column here. Arrow's own cast cannot be
trusted: it multiplies by the power of ten that a larger scale needs modulo 2^128 (2^256), notices an overflow
only where the result is smaller than the number, and takes -2^127 for a number of few digits. So the digits
before the point are compared first, with numbers of any size. What fits there has no more digits than the
column, and the cast cannot overflow.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_WIDE_DIGITS = 76
_MAX_PRECISION = 38
_WHOLE = pa.decimal128(20, 0)
"""Holds signed and unsigned 64-bit integers."""


class InexactDecimalError(pa.ArrowInvalid):  # type: ignore[misc]
    """A value does not fit the requested decimal type, or is not a number."""


def exact_decimals(array: pa.Array, type_: pa.Decimal128Type) -> pa.Array:
    """Whole numbers, decimals, or numbers as text without exponent, as decimals of `type_`; nulls stay null.

    Raises InexactDecimalError when a number has too many digits before or after the point, or cannot be
    parsed.
    """
    try:
        if pa.types.is_string(array.type):
            array = _of_text(array, type_)
        elif pa.types.is_decimal(array.type) and array.type.bit_width < type_.bit_width:
            array = array.cast(pa.decimal128(_MAX_PRECISION, array.type.scale))
        require_room(array, type_)
        if pa.types.is_integer(array.type):
            array = array.cast(_WHOLE)
        if type_.scale - array.type.scale > _MAX_PRECISION:
            # Only 0 fits, and Arrow has no such power of ten.
            return pc.if_else(array.is_valid(), pa.scalar(Decimal(0), type_), pa.scalar(None, type_))
        return array if array.type.equals(type_) else array.cast(type_)
    except pa.ArrowInvalid as error:
        if "Rescaling" in str(error):
            raise InexactDecimalError(
                f"it has more digits after the point than the {type_.scale} of the column"
            ) from error
        raise InexactDecimalError(str(error)) from error


def require_room(array: pa.Array, type_: pa.Decimal128Type) -> None:
    """Check that `type_` has enough digits before the point for whole numbers or decimals.

    Raises InexactDecimalError if it has not.
    """
    bounds = pc.min_max(array)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    limit = Decimal((0, (1,), type_.precision - type_.scale))
    if low is not None and not (-limit < low and high < limit):
        found = low if low <= -limit else high
        raise InexactDecimalError(
            f"{found} has more than {type_.precision - type_.scale} digits before the point"
        )


def wide_decimal(type_: pa.Decimal128Type) -> pa.Decimal256Type:
    """The widest type of the same scale: an intermediate type that `exact_decimals` then narrows."""
    return pa.decimal256(_WIDE_DIGITS, type_.scale)


def _of_text(text: pa.Array, type_: pa.Decimal128Type) -> Any:
    """Decimals of texts; texts that are too long or have an exponent are refused first.

    Arrow's parser overflows beyond `_WIDE_DIGITS` digits too. It reads an exponent as 0, or as a power that
    overflows.
    """
    longest = pc.max(pc.binary_length(text)).as_py()
    if longest is not None and longest > _WIDE_DIGITS:
        raise InexactDecimalError(f"a number has more than {_WIDE_DIGITS} digits")
    for letter in "eE":
        if pc.any(pc.match_substring(text, letter), min_count=0).as_py():
            raise InexactDecimalError("a number has an exponent")
    return text.cast(wide_decimal(type_))
