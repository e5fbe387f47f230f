"""Unavailable values: Debezium's placeholder for values that the database did not send.

Databases leave out large values that did not change (TOASTed columns of PostgreSQL). The placeholder comes in
the column's own form: as text; as bytes; in an array of one text, or of one value of bytes; as an array of
the placeholder's bytes as numbers; in an array of the one UUID that Java makes of its name; as a map; or as
that map in JSON (hstore). Such a cell is unavailable: the row keeps the value of the row that it replaces.
For other types Debezium sends null, which stays null.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.spec.types.data_types import (
    BinaryType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    UUIDType,
)

DEFAULT_PLACEHOLDER = "__debezium_unavailable_value"


class Unavailable:
    """Finds one placeholder, the connector's `unavailable.value.placeholder`."""

    def __init__(self, placeholder: str = DEFAULT_PLACEHOLDER) -> None:
        data = placeholder.encode()
        self._texts = (
            placeholder,
            json.dumps({placeholder: placeholder}, separators=(",", ":"), ensure_ascii=False),
        )
        self._numbers = np.frombuffer(data, dtype=np.int8)
        self._encoded = base64.b64encode(data).decode()
        self._data = data
        self._uuid = _named_uuid(data)
        self._lists: tuple[Any, ...] = (
            [placeholder],
            [int(number) for number in self._numbers],
            [str(self._uuid)],
        )
        self._map = {placeholder: placeholder}

    def mask(self, array: pa.Array, physical: IcebergType) -> Any:
        """(n,) bool: the unavailable cells of an array that was read as `physical`; None without any."""
        if isinstance(physical, StringType):
            text, of_map = (pc.equal(array, pa.scalar(each, pa.string())) for each in self._texts)
            found = pc.or_(text, of_map)
        elif isinstance(physical, BinaryType):
            found = pc.equal(array, pa.scalar(self._data, pa.binary()))
        elif isinstance(physical, ListType):
            return self._list_mask(array, physical.element_type)
        else:
            return None
        if not pc.any(found, min_count=0).as_py():
            return None
        return found.fill_null(False).to_numpy(zero_copy_only=False)

    def is_placeholder(self, found: Any, physical: IcebergType) -> bool:
        """Whether one JSON value is the placeholder in any form that a column of `physical` can have."""
        if isinstance(found, str):
            # As bytes it is base64; in a text column, the same text is a value.
            return found in self._texts or (
                found == self._encoded and isinstance(physical, (BinaryType, FixedType))
            )
        if isinstance(found, list):
            if isinstance(physical, MapType):
                return found == [list(pair) for pair in self._map.items()]
            is_bytes = isinstance(physical, ListType) and isinstance(physical.element_type, BinaryType)
            return found in self._lists or (is_bytes and found == [self._encoded])
        return isinstance(found, dict) and found == self._map

    def is_shown(self, found: Any) -> bool:
        """Whether a JSON value is the placeholder, where its column is not known."""
        return self.is_placeholder(found, StringType())

    def _list_mask(self, array: pa.Array, element: IcebergType) -> Any:
        if isinstance(element, (IntegerType, LongType)):
            count = len(self._numbers)
        elif isinstance(element, (StringType, BinaryType, UUIDType)):
            count = 1
        else:
            return None
        single = pc.fill_null(pc.equal(array.value_lengths(), count), False)
        rows = np.flatnonzero(single.to_numpy(zero_copy_only=False))
        if not len(rows):
            return None
        elements = array.take(pa.array(rows)).flatten()
        if isinstance(element, (IntegerType, LongType)):
            numbers = elements.fill_null(-1) if elements.null_count else elements
            hit = (numbers.to_numpy().reshape(len(rows), -1) == self._numbers).all(axis=1)
        else:
            hit = self._single(elements, element).fill_null(False).to_numpy(zero_copy_only=False)
        if not hit.any():
            return None
        mask: Any = np.zeros(len(array), dtype=bool)
        mask[rows[hit]] = True
        return mask

    def _single(self, elements: pa.Array, element: IcebergType) -> pa.BooleanArray:
        """(n,) bool: the elements of arrays of one element that stand for the placeholder."""
        if isinstance(element, StringType):
            return pc.is_in(elements, pa.array([self._texts[0], str(self._uuid)]))
        if isinstance(element, BinaryType):
            return pc.equal(elements, pa.scalar(self._data, pa.binary()))
        storage = elements.storage if isinstance(elements, pa.ExtensionArray) else elements
        return pc.equal(storage, pa.scalar(self._uuid.bytes, storage.type))


def _named_uuid(name: bytes) -> uuid.UUID:
    """The UUID that Java's `UUID.nameUUIDFromBytes` makes: version 3, without a namespace."""
    return uuid.UUID(bytes=hashlib.md5(name, usedforsecurity=False).digest(), version=3)
