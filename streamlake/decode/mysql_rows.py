"""Changes whose row and old values stand side by side, as Canal and Maxwell write those of MySQL.

Used by their decoders. "old" holds the former values of changed columns only, so the row that an update takes out is
the new row with the old values laid over it. Invariant: it is taken out only where its key, or what names its table,
differs, and a null that is there is a value.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.envelope import Array, Change
from streamlake.decode.json_values import FieldError
from streamlake.decode.row_reader import RowReader
from streamlake.records import RowKind
from streamlake.spec.types import NestedField, StructType

_PLAIN = re.compile(r"[A-Za-z0-9_ .$-]+")


def row_changes(
    reader: RowReader, kind: RowKind, row: Any, old: Any, sequence: int | None, path: str
) -> list[Change]:
    """The changes of one row. Raises ValueError with the reason."""
    found, unset = reader.row(row, path, brought=kind != RowKind.DELETE, nulls=reader.routes)
    changes = [Change(kind, found, sequence, unset)]
    if kind == RowKind.UPDATE_AFTER and old is not None:
        if not isinstance(old, dict):
            raise FieldError("'old' is no object")
        if reader.has_moved(old, found, unset, "old"):
            gone, unknown = reader.row({**row, **old}, "old", brought=False, nulls=reader.placing)
            changes.insert(0, Change(RowKind.DELETE, gone, sequence, unknown))
    return changes


def key_type(reader: RowReader) -> StructType:
    """What "old" is read as in bulk: the columns of the key, and those that name a table."""
    return StructType(tuple(NestedField(0, name, reader.readings[name].physical) for name in reader.placing))


def has_nulls(reader: RowReader, values: pa.Array) -> Array:
    """(n,) bool: records that may have a null, as against no field, for a column that places a row, which Arrow's reader of JSON
    does not tell; (n,) `values` are their texts."""
    found: Array = np.zeros(len(values), dtype=bool)
    for part in reader.fields:
        if part.name in reader.placing and not part.required:
            # A name with other letters may be written with escapes.
            name = re.escape(part.name) if _PLAIN.fullmatch(part.name) else r'(?:[^"\\]|\\.)*'
            pattern = rf'"{name}"\s*:\s*null'.encode()
            found |= pc.match_substring_regex(values, pattern).to_numpy(zero_copy_only=False)
    return found
