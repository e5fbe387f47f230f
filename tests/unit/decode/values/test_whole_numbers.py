"""Whole numbers against Python's, wherever in a block they stand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlake.decode.values.text_columns import NotBulkError
from streamlake.decode.values.whole_numbers import DIGITS, whole_numbers

NUMBERS = st.one_of(st.integers(-(10**DIGITS) + 1, 10**DIGITS - 1), st.integers(-99, 99))


def read(texts, before="", after=""):
    whole = before + "".join(texts) + after
    bounds = np.cumsum([len(before), *map(len, texts)])
    return whole_numbers(np.frombuffer(whole.encode(), dtype=np.uint8), bounds[:-1], bounds[1:])


@given(
    st.lists(NUMBERS, min_size=1, max_size=20),
    st.text("0123456789-", max_size=20),
    st.sampled_from(["", "7"]),
)
def test_numbers_beside_others(numbers, before, after):
    assert read([str(number) for number in numbers], before, after).tolist() == numbers


@pytest.mark.parametrize(
    "text", ["-", "01", "-01", "00", "+1", "1.0", "1e5", "1" * 19, " 1", "1 ", "null", "1:", "/1", "a", "-a"]
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_is_no_whole_number(text, at):
    texts = ["5", "-77", "123456789"]
    texts[at] = text
    with pytest.raises(NotBulkError):
        read(texts)


@given(st.integers(0, 255), st.integers(0, 17))
def test_every_byte_at_every_place(letter, place):
    data = bytearray(b"123456789012345678")
    data[place] = letter
    known = np.frombuffer(bytes(data), dtype=np.uint8)
    bounds = np.array([0]), np.array([len(data)])
    if (
        bytes(data).lstrip(b"-").isdigit()
        and data[0] != ord("0")
        and not bytes(data).startswith((b"-0", b"--"))
    ):
        assert whole_numbers(known, *bounds).tolist() == [int(data)]
    else:
        with pytest.raises(NotBulkError):
            whole_numbers(known, *bounds)


def test_nothing():
    assert whole_numbers(np.empty(0, dtype=np.uint8), *np.empty((2, 0), dtype=np.int64)).tolist() == []
