"""Lossy converters, for `debezium.lossy-conversion`: they drop digits that the column has no room for.

They wrap the exact converters of `converter` and `decimal_converters`. Times are truncated downwards (the
past never moves into the future), decimals are rounded half away from zero. Invariant: what is not a matter
of digits (a number that is too large, another kind of value) is still refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.converters.converter import (
    Converter,
    Epoch,
    Leaf,
    Plain,
    TimeOfDay,
    Zulu,
    whole_number,
)
from streamlake.decode.converters.decimal_converters import Unscaled, VariableScale, unscaled_decimals
from streamlake.decode.json.json_values import RESOLUTION_NANOS
from streamlake.decode.values import text_values
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.formats.arrow.exact_decimals import exact_decimals
from streamlake.spec.types.data_types import DecimalType, IcebergType, TimeType

_MICRO = 1_000
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Moves the decimal point and keeps all digits; the default context keeps 28."""
_DIGITS = 100
_FRACTION = re.compile(r"(\.\d{6})\d+")
_NANO_FRACTION = re.compile(r"(\.\d{9})\d+")


def lossy(converter: Converter) -> Converter:
    """A converter that drops digits where `converter` refuses them; `converter` where it never does."""
    if isinstance(converter, (Epoch, TimeOfDay)):
        return CutMoment(converter)
    if isinstance(converter.type, DecimalType) and isinstance(converter, (Unscaled, VariableScale, Plain)):
        return RoundedDecimal(converter)
    is_moment = isinstance(converter.type, TimeType) or type(converter.type) in RESOLUTION_NANOS
    return CutText(converter) if is_moment and isinstance(converter, (Plain, Zulu)) else converter


@dataclass(frozen=True)
class CutMoment(Leaf):
    """Whole numbers of a time unit, truncated to the column's precision."""

    exact: Epoch | TimeOfDay

    @property
    def type(self) -> IcebergType:  # type: ignore[override]
        """The column's type."""
        return self.exact.type

    @property
    def physical(self) -> IcebergType:
        """See Converter.physical."""
        return self.exact.physical

    @property
    def _factor(self) -> int:
        """How many of the record's units make one unit of the column."""
        return max(1, RESOLUTION_NANOS.get(type(self.type), _MICRO) // self.exact.unit_nanos)

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        factor = pa.scalar(self._factor, pa.int64())
        cut = pc.divide(array, factor)
        rest = pc.subtract(array, pc.multiply(cut, factor))
        below = pc.less(rest, pa.scalar(0, pa.int64())).cast(pa.int64())
        return self.exact.column(pc.multiply(pc.subtract(cut, below), factor))

    def _value(self, found: Any) -> int:
        moment: int = self.exact._value(whole_number(found) // self._factor * self._factor)
        return moment


@dataclass(frozen=True)
class CutText(Leaf):
    """ISO text with more digits of a second than the column has."""

    exact: Plain | Zulu

    @property
    def type(self) -> IcebergType:  # type: ignore[override]
        """The column's type."""
        return self.exact.type

    @property
    def physical(self) -> IcebergType:
        """See Converter.physical."""
        return self.exact.physical

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        return self.exact.column(array)

    def _value(self, found: Any) -> Any:
        if isinstance(found, str):
            fine = RESOLUTION_NANOS.get(type(self.type), _MICRO) < _MICRO
            found = (_NANO_FRACTION if fine else _FRACTION).sub(r"\1", found)
        return self.exact._value(found)


@dataclass(frozen=True)
class RoundedDecimal(Leaf):
    """Decimals with more digits after the point than the column has."""

    exact: Unscaled | VariableScale | Plain

    @property
    def type(self) -> DecimalType:  # type: ignore[override]
        """The column's type."""
        assert isinstance(self.exact.type, DecimalType)
        return self.exact.type

    @property
    def physical(self) -> IcebergType:
        """See Converter.physical."""
        return self.exact.physical

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        if not isinstance(self.exact, Unscaled) or self.exact.scale <= self.type.scale:
            return self.exact.column(array)
        found = unscaled_decimals(array, self.exact.scale)
        try:
            rounded = pc.round(found, self.type.scale, round_mode="half_towards_infinity")
            return exact_decimals(rounded, arrow_type(self.type))
        except pa.ArrowInvalid as error:
            raise NotBulkError from error

    def _value(self, found: Any) -> Any:
        number = self._number(found)
        if number is None or not number.is_finite():
            return self.exact._value(found)
        with localcontext() as context:
            context.prec = _DIGITS
            scaled = number.quantize(Decimal((0, (1,), -self.type.scale)), rounding=ROUND_HALF_UP)
        return text_values.exact_decimal(scaled, self.type.precision, self.type.scale)

    def _number(self, found: Any) -> Decimal | None:
        """The number that a JSON value stands for; None where it is not a number."""
        if isinstance(self.exact, Plain):
            if isinstance(found, str):
                return text_values.decimal(found)
            is_number = isinstance(found, (int, Decimal)) and not isinstance(found, bool)
            return Decimal(found) if is_number else None
        scale: Any = self.exact.scale if isinstance(self.exact, Unscaled) else None
        if isinstance(self.exact, VariableScale):
            if not isinstance(found, dict):
                return None
            found, scale = found.get("value"), found.get("scale")
        if not isinstance(found, str) or type(scale) is not int:
            return None
        data = text_values.base64_bytes(found, None)
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT) if data else None
