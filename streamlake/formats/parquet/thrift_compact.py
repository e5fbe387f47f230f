"""Thrift's compact protocol, as far as Parquet's metadata needs it: bytes and structs without a schema.

A struct is a dict of field id -> (type, value), a list is a (type, values) pair. Unknown fields are kept and
written back as they were. Used where a Parquet footer or page index is needed in more detail than pyarrow
offers.
"""

from __future__ import annotations

import struct
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

Struct = dict[int, tuple[int, Any]]


class ThriftReader:
    """Reads values one after the other. Raises IndexError, ValueError or struct.error for invalid bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        """The struct at the current position, as a dict of field id -> (type, value)."""
        fields: Struct = {}
        field_id = 0
        while True:
            head = self._byte()
            if head == 0:
                return fields
            type_ = head & 0x0F
            field_id = field_id + (head >> 4) if head >> 4 else self._zigzag()
            fields[field_id] = (type_, type_ == TRUE if type_ in (TRUE, FALSE) else self._value(type_))

    def _value(self, type_: int) -> Any:
        if type_ in (I16, I32, I64):
            return self._zigzag()
        if type_ == BINARY:
            return self._take(self._varint())
        if type_ == STRUCT:
            return self.struct()
        if type_ in (LIST, SET):
            return self._list()
        if type_ in (TRUE, FALSE, BYTE):
            return self._byte()
        if type_ == DOUBLE:
            return struct.unpack("<d", self._take(8))[0]
        raise ValueError(f"type {type_}")

    def _list(self) -> tuple[int, list[Any]]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        if count > len(self._data):
            raise ValueError(f"a list of {count} values")
        return head & 0x0F, [self._value(head & 0x0F) for _ in range(count)]

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _take(self, length: int) -> bytes:
        value = self._data[self._at : self._at + length]
        if len(value) < length:
            raise ValueError("the bytes end within a value")
        self._at += length
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


def struct_bytes(fields: Struct) -> bytes:
    """The bytes of a struct."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def _write_struct(out: bytearray, fields: Struct) -> None:
    before = 0
    for field_id, (type_, value) in sorted(fields.items()):
        if type_ in (TRUE, FALSE):
            type_ = TRUE if value else FALSE
        if 0 < field_id - before < 16:
            out.append((field_id - before) << 4 | type_)
        else:
            out.append(type_)
            _write_zigzag(out, field_id)
        before = field_id
        if type_ not in (TRUE, FALSE):
            _write_value(out, type_, value)
    out.append(0)


def _write_value(out: bytearray, type_: int, value: Any) -> None:
    if type_ in (I16, I32, I64):
        _write_zigzag(out, value)
    elif type_ == BINARY:
        _write_varint(out, len(value))
        out += value
    elif type_ == STRUCT:
        _write_struct(out, value)
    elif type_ in (LIST, SET):
        inner, values = value
        out.append(min(len(values), 15) << 4 | inner)
        if len(values) >= 15:
            _write_varint(out, len(values))
        for each in values:
            _write_value(out, inner, each)
    elif type_ == DOUBLE:
        out += struct.pack("<d", value)
    else:
        out.append(value)


def _write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_zigzag(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else (-value << 1) - 1)
