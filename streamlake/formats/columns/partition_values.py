"""Converts a few Arrow values to the Python domain of `spec`: days, microseconds, `Decimal`, `UUID`, `bytes`.

Used for the distinct partition values of a batch, never for its rows.
"""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa

from streamlake.formats.arrow.arrow_transforms import plain_array
from streamlake.spec.types.data_types import IcebergType, UUIDType


def partition_values(array: pa.Array, type_: IcebergType) -> list[Any]:
    """The values of a primitive array whose Iceberg type is `type_`; None for null."""
    array = plain_array(array)
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    values: list[Any] = array.to_pylist()
    if isinstance(type_, UUIDType):
        return [None if value is None else uuid.UUID(bytes=value) for value in values]
    return values
