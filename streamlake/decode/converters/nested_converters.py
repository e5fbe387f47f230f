"""Converters of structs, lists and maps whose parts have converters of their own.

Arrow's JSON reader has no maps: a column that holds one is read record by record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.converters.converter import Converter
from streamlake.decode.json.json_values import mismatch
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import IcebergType, ListType, MapType, NestedField, StructType


@dataclass(frozen=True)
class StructOf:
    """An object; `parts` maps the target's fields to their converters (a field without one gives nulls)."""

    type: StructType
    parts: Mapping[str, Converter]

    @property
    def physical(self) -> IcebergType:
        """See Converter.physical."""
        return StructType(tuple(NestedField(0, name, part.physical) for name, part in self.parts.items()))

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        present = array.is_valid()
        target = arrow_type(self.type)
        arrays = []
        for part, field in zip(self.type.fields, target, strict=True):
            converter = self.parts.get(part.name)
            if converter is None:
                found = pa.nulls(len(array), field.type)
            else:
                found = converter.column(array.field(part.name))
            if part.required and pc.any(pc.and_(present, found.is_null()), min_count=0).as_py():
                raise NotBulkError
            arrays.append(found)
        mask = pc.invert(present) if array.null_count else None
        return pa.StructArray.from_arrays(arrays, fields=list(target), mask=mask)

    def value(self, found: Any, path: str) -> Any:
        """See Converter.value."""
        if found is None:
            return None
        if not isinstance(found, dict):
            raise mismatch(path, self.type, found, "an object is needed")
        row = {}
        for part in self.type.fields:
            converter = self.parts.get(part.name)
            inner = f"{path}.{part.name}"
            row[part.name] = None if converter is None else converter.value(found.get(part.name), inner)
            if part.required and row[part.name] is None:
                raise mismatch(inner, part.type, None, "it is required, but missing or null")
        return row


@dataclass(frozen=True)
class ListOf:
    """An array whose elements are all converted by `element`."""

    type: ListType
    element: Converter

    @property
    def physical(self) -> IcebergType:
        """See Converter.physical."""
        return ListType(0, self.element.physical)

    def column(self, array: pa.Array) -> pa.Array:
        """See Converter.column."""
        lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        elements = self.element.column(array.flatten())
        if self.type.element_required and elements.null_count:
            raise NotBulkError
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(pa.array(offsets), elements, type=arrow_type(self.type), mask=mask)

    def value(self, found: Any, path: str) -> Any:
        """See Converter.value."""
        if found is None:
            return None
        if not isinstance(found, list):
            raise mismatch(path, self.type, found, "an array is needed")
        inner = f"{path}.element"
        elements = [self.element.value(item, inner) for item in found]
        if self.type.element_required and None in elements:
            raise mismatch(inner, self.type.element_type, None, "it is required, but null")
        return elements


@dataclass(frozen=True)
class MapOf:
    """An object, or for keys other than text an array of [key, value] pairs, as Kafka Connect writes it."""

    type: MapType
    key: Converter
    item: Converter

    @property
    def physical(self) -> IcebergType:
        """See Converter.physical."""
        return self.type

    def column(self, array: pa.Array) -> pa.Array:
        """Raises NotBulkError: maps are read record by record."""
        raise NotBulkError

    def value(self, found: Any, path: str) -> Any:
        """See Converter.value."""
        if found is None:
            return None
        if isinstance(found, dict):
            pairs = list(found.items())
        elif isinstance(found, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in found):
            pairs = found
        else:
            raise mismatch(path, self.type, found, "an object, or an array of [key, value], is needed")
        entries = [
            (self.key.value(key, f"{path}.key"), self.item.value(item, f"{path}.value"))
            for key, item in pairs
        ]
        if any(key is None or (self.type.value_required and item is None) for key, item in entries):
            raise mismatch(path, self.type, found, "a key, or a value that is required, is null")
        return entries
