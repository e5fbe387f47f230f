"""Numbers that become decimals of another scale: the number itself or a refusal, over everything that Arrow can hold."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamlake.formats.arrow.exact_decimals import InexactDecimalError, exact_decimals, require_room
from streamlake.operate.verify.postgres_table import PostgresColumn
from streamlake.operate.verify.postgres_values import rendering
from streamlake.spec.types.ddl import parse_ddl
from streamlake.write.rows.conversion import NotConvertibleError, converted

TYPES = st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p)))
LIMITS = (2**31, 2**32, 2**63, 2**64, 2**127, 2**128, 10**18, 10**19, 10**37, 10**38)
NEAR_LIMITS = st.builds(
    lambda limit, more, sign: sign * (limit + more),
    st.sampled_from(LIMITS),
    st.integers(-2, 2),
    st.sampled_from([1, -1]),
)
WRAPPING = st.builds(
    lambda bits, turns, digits, more, sign: sign * (-(-turns * 2**bits // 10**digits) + more),
    st.sampled_from([128, 256]),
    st.integers(1, 9),
    st.integers(1, 70),
    st.integers(-1, 1),
    st.sampled_from([1, -1]),
)
"""Numbers that are small again, modulo 2^bits, when they get so many digits more."""
UNSCALED = st.one_of(st.integers(-(10**76), 10**76), st.integers(-9, 9), NEAR_LIMITS, WRAPPING)


def expected(number, precision, scale):
    """What Python says: the number with the digits of the scale, or None where it has others or too many."""
    sign, digits, exponent = number.as_tuple()
    unscaled = int("".join(map(str, digits))) * 10 ** max(exponent + scale, 0)
    rest = 10 ** max(-(exponent + scale), 0)
    if unscaled % rest or unscaled // rest >= 10**precision:
        return None
    found = unscaled // rest
    return Decimal((sign, tuple(map(int, str(found))), -scale)) if found else Decimal(0)


def read(array, precision, scale):
    """The elements, or None where they are refused; always as decimals of the type."""
    type_ = pa.decimal128(precision, scale)
    try:
        found = exact_decimals(array, type_)
    except InexactDecimalError:
        return None
    assert found.type == type_
    found.validate(full=True)
    return found.to_pylist()


def check(array, number, precision, scale):
    wanted = expected(number, precision, scale)
    assert read(array, precision, scale) == (None if wanted is None else [wanted])
    around = pa.concat_arrays([pa.nulls(1, array.type), array, pa.nulls(1, array.type)])
    assert read(around, precision, scale) == (None if wanted is None else [None, wanted, None])


@settings(deadline=None)
@given(UNSCALED, TYPES)
@example(10**18, (38, 30))
@example(123456789012345678, (38, 38))
@example(-(2**63), (38, 20))
def test_whole_numbers(number, type_):
    for width in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        try:
            array = pa.array([number], width)
        except (pa.ArrowInvalid, OverflowError):
            continue
        check(array, Decimal(number), *type_)


@settings(deadline=None)
@given(UNSCALED, st.integers(-76, 76), TYPES, st.sampled_from([32, 64, 128, 256]))
@example(3402823669209384635, 0, (38, 20), 128)
@example(-(2**127), 0, (38, 0), 128)
@example(-(2**127), 2, (10, 2), 128)
@example(30404511932603680076097169265925081608, -21, (38, 38), 128)
@example(0, -38, (38, 38), 128)
def test_decimals(unscaled, scale, type_, bits):
    most = {32: 9, 64: 18, 128: 38, 256: 76}[bits]
    if abs(scale) > most or not -(2 ** (bits - 1)) <= unscaled < 2 ** (bits - 1):
        return
    source = getattr(pa, f"decimal{bits}")(most, scale)
    data = pa.py_buffer(unscaled.to_bytes(bits // 8, "little", signed=True))
    array = pa.Array.from_buffers(source, 1, [None, data])
    number = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    check(array, number, *type_)


@settings(deadline=None)
@given(UNSCALED, st.integers(0, 80), TYPES)
@example(2**256 * 10**38, 76, (38, 38))
def test_texts(unscaled, scale, type_):
    number = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    with localcontext() as context:
        context.prec = 200
        text = format(number, "f")
    if len(text) > 76:
        assert read(pa.array([text]), *type_) is None
    else:
        check(pa.array([text]), number, *type_)


@pytest.mark.parametrize("text", ["1e5", "5E-99", "7e38", "", " 1", "NaN", "Infinity", "1_0", "1" * 77])
def test_texts_that_are_left_to_others(text):
    assert read(pa.array([text]), 38, 0) is None


def test_what_128_bits_hold_and_38_digits_do_not():
    for unscaled in (-(2**127), 2**127 - 1, 10**38, -(10**38)):
        data = pa.py_buffer(unscaled.to_bytes(16, "little", signed=True))
        array = pa.Array.from_buffers(pa.decimal128(38, 5), 1, [None, data])
        with pytest.raises(InexactDecimalError, match="more than 33 digits before the point"):
            require_room(array, array.type)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), TYPES)
@example(10**18, (38, 30))
def test_columns_of_dataframes(number, type_):
    column = parse_ddl("d decimal({},{})".format(*type_)).fields[0].type
    wanted = expected(Decimal(number), *type_)
    for array in (
        pa.array([0, None, number, 0], pa.int64()),
        pa.array([0, None, number, 0], pa.decimal128(38, 0)),
    ):
        if wanted is None:
            with pytest.raises(NotConvertibleError) as error:
                converted(array, column, "d")
            assert error.value.row == 2
            assert re.search(r"does not fit the table's type", error.value.message)
        else:
            assert converted(array, column, "d").to_pylist() == [0, None, wanted, 0]


@settings(deadline=None)
@given(UNSCALED, st.integers(0, 40), TYPES)
@example(3402823669209384635, 0, (38, 20))
def test_numbers_of_postgres(unscaled, scale, type_):
    number = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    text = format(number, "f")
    wanted = expected(number, *type_)
    column = rendering(
        PostgresColumn("d", "numeric"), parse_ddl("d decimal({},{})".format(*type_)).fields[0].type
    )
    for texts in ([text], [text, None], [text, None, "NaN"]):
        if wanted is None or len(text) > 76:
            with pytest.raises(pa.ArrowInvalid):
                column.arrow(pa.array(texts))
        else:
            assert column.arrow(pa.array(texts))[:1].to_pylist() == [wanted]


def test_too_many_digits_after_the_point_are_called_that():
    column = parse_ddl("price decimal(10, 2)").find("price")
    with pytest.raises(NotConvertibleError) as refused:
        converted(pa.array([Decimal("1.50"), Decimal("1.234")]), column.type, "price")
    assert "it has more digits after the point than the 2 of the column" in refused.value.message
