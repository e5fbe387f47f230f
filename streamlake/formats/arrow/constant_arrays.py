"""Arrow arrays that repeat one value of the spec's Python domain.

Readers use them for columns that a file does not hold: partition constants, defaults, nulls.
"""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa

from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import IcebergType, StructType, UUIDType


def constant_array(type_: IcebergType, value: Any, rows: int) -> pa.Array:
    """An array of `rows` times `value` (None: null).

    Fields of a struct that the value lacks get their own initial defaults.
    """
    target = arrow_type(type_)
    if value is None:
        return pa.nulls(rows, target)
    if isinstance(type_, StructType):
        parts = [
            constant_array(
                part.type,
                value[part.name] if value.get(part.name) is not None else part.initial_default,
                rows,
            )
            for part in type_.fields
        ]
        return pa.StructArray.from_arrays(parts, fields=[target.field(at) for at in range(target.num_fields)])
    if isinstance(type_, UUIDType):
        raw = value.bytes if isinstance(value, uuid.UUID) else bytes(value)
        storage = pa.repeat(pa.scalar(raw, pa.binary(16)), rows)
        return (
            pa.ExtensionArray.from_storage(target, storage)
            if isinstance(target, pa.BaseExtensionType)
            else storage
        )
    if pa.types.is_temporal(target):
        integer = pa.int32() if pa.types.is_date32(target) else pa.int64()
        return pa.repeat(pa.scalar(value, integer), rows).view(target)
    return pa.repeat(pa.scalar(value, target), rows)
