"""Parser of whole numbers at many positions of a block at once: eight decimal digits as one 64-bit word.

Used for the values that record templates cut out. The digits of a word are checked and summed in its bytes,
so a number costs two or three words, and none of it is copied as text.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlake.decode.values.text_columns import NotBulkError

_Array = np.ndarray[Any, Any]

DIGITS = 18
"""The maximum number of digits: all such numbers fit into int64."""
_WORD = 8
_ZEROS = np.uint64(0x3030303030303030)
_HIGH = np.uint64(0xF0F0F0F0F0F0F0F0)
_SIX = np.uint64(0x0606060606060606)
_THREES = np.uint64(0x3333333333333333)
_ABOVE: _Array = np.array([*((1 << 64) - (1 << 8 * count) for count in range(_WORD)), 0], dtype=np.uint64)
"""Masks that keep the letters of a word after its first `count`."""
_MINUS, _ZERO = ord("-"), ord("0")


def whole_numbers(data: _Array, begin: _Array, end: _Array) -> _Array:
    """(n,) int64: the JSON numbers in the bytes `begin`[i] to `end`[i] of `data` (uint8), none of them empty.

    Raises NotBulkError where one is not a whole number or has more than DIGITS digits.
    """
    if not len(begin):
        return np.empty(0, dtype=np.int64)
    negative = data[begin] == _MINUS
    first = begin + negative
    digits = end - first
    longest = int(digits.max())
    if longest > DIGITS or digits.min() < 1 or ((data[first] == _ZERO) & (digits > 1)).any():
        raise NotBulkError
    if len(data) < _WORD:
        data = np.concatenate([data, np.zeros(_WORD, dtype=np.uint8)])
    windows: _Array = np.ndarray((len(data) - _WORD + 1,), f"V{_WORD}", data, strides=(1,))
    found: _Array = np.zeros(len(begin), dtype=np.uint64)
    scale = 1
    for skipped in range(0, longest, _WORD):
        place = end - skipped - _WORD
        word = windows[np.maximum(place, 0)].view("<u8")
        if place.min() < 0:
            # At the beginning of the data, a word holds fewer bytes before the number's last digit.
            word = word << (8 * np.clip(-place, 0, _WORD - 1)).astype(np.uint64)
        own = _ABOVE[np.clip(skipped + _WORD - digits, 0, _WORD)]
        word = (word & own) | (_ZEROS & ~own)
        # A digit has 3 in its upper four bits, and still has it when 6 is added.
        if (((word & _HIGH) | (((word + _SIX) & _HIGH) >> np.uint64(4))) != _THREES).any():
            raise NotBulkError
        found += _value(word - _ZEROS) * np.uint64(scale)
        scale *= 10**_WORD
    numbers = found.view(np.int64)
    return np.where(negative, -numbers, numbers) if negative.any() else numbers


def _value(word: _Array) -> _Array:
    """The number that the eight digits of each word make; the first digit is in the lowest byte."""
    word = word * np.uint64(10) + (word >> np.uint64(8))
    pairs = word & np.uint64(0x000000FF000000FF)
    others = (word >> np.uint64(16)) & np.uint64(0x000000FF000000FF)
    result: _Array = (
        pairs * np.uint64(0x000F424000000064) + others * np.uint64(0x0000271000000001)
    ) >> np.uint64(32)
    return result
