"""Debezium's mark for values that the database did not send (unchanged TOASTed columns of PostgreSQL).

The placeholder comes in the column's own form: as text, as bytes, in an array of texts, or as an array of the
placeholder's bytes as numbers. Where it is found the cell is unset: its value is that of the row it replaces.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.spec.types import BinaryType, IcebergType, IntegerType, ListType, LongType, StringType

DEFAULT_PLACEHOLDER = "__debezium_unavailable_value"


class Unavailable:
    """Finds one placeholder, the connector's `unavailable.value.placeholder`."""

    def __init__(self, placeholder: str = DEFAULT_PLACEHOLDER) -> None:
        data = placeholder.encode()
        self._text = pa.scalar(placeholder, pa.string())
        self._bytes = pa.scalar(data, pa.binary())
        self._numbers = np.frombuffer(data, dtype=np.int8)
        encoded = base64.b64encode(data).decode()
        self._forms: tuple[Any, ...] = (
            placeholder,
            encoded,
            [placeholder],
            [int(number) for number in self._numbers],
            {placeholder: placeholder},
        )

    def mask(self, array: pa.Array, physical: IcebergType) -> Any:
        """(n,) bool for an array that was read as `physical`, or None where nothing is unset."""
        if isinstance(physical, StringType):
            found = pc.equal(array, self._text)
        elif isinstance(physical, BinaryType):
            found = pc.equal(array, self._bytes)
        elif isinstance(physical, ListType):
            return self._list_mask(array, physical.element_type)
        else:
            return None
        if not pc.any(found, min_count=0).as_py():
            return None
        return found.fill_null(False).to_numpy(zero_copy_only=False)

    def marks(self, found: Any, physical: IcebergType) -> bool:
        """Whether one value of JSON is the placeholder in any form that a column of `physical` can have."""
        if isinstance(found, str):
            # As bytes it is base64; in a column of text that same text is a value.
            return found == self._forms[0] or (found == self._forms[1] and isinstance(physical, BinaryType))
        return isinstance(found, (list, dict)) and any(found == form for form in self._forms[2:])

    def _list_mask(self, array: pa.Array, element: IcebergType) -> Any:
        if isinstance(element, StringType):
            single = pc.fill_null(pc.equal(array.value_lengths(), 1), False)
            wanted: Any = self._text
        elif isinstance(element, (IntegerType, LongType)):
            single = pc.fill_null(pc.equal(array.value_lengths(), len(self._numbers)), False)
            wanted = None
        else:
            return None
        rows = np.flatnonzero(single.to_numpy(zero_copy_only=False))
        if not len(rows):
            return None
        elements = array.take(pa.array(rows)).flatten()
        if wanted is not None:
            hit = pc.equal(elements, wanted).fill_null(False).to_numpy(zero_copy_only=False)
        elif elements.null_count:
            numbers = elements.fill_null(-1).to_numpy().reshape(len(rows), -1)
            hit = (numbers == self._numbers).all(axis=1)
        else:
            hit = (elements.to_numpy().reshape(len(rows), -1) == self._numbers).all(axis=1)
        if not hit.any():
            return None
        mask: Any = np.zeros(len(array), dtype=bool)
        mask[rows[hit]] = True
        return mask
