"""Row changes of MySQL from a row and its old values side by side, as Canal and Maxwell write them.

Used by their decoders. "old" holds the former values of changed columns only, so the old row is the new row
with the old values on top. Invariant: the old row is deleted only where its key, or what names its table,
differs. A null that is present is a value.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.cdc.row_reader import RowReader
from streamlake.decode.json.json_values import FieldError
from streamlake.decode.values.envelope import Array, Change
from streamlake.records import RowKind
from streamlake.spec.types.data_types import NestedField, StructType

_PLAIN = re.compile(r"[A-Za-z0-9_ .$-]+")


def row_changes(
    reader: RowReader, kind: RowKind, row: Any, old: Any, sequence: int | None, path: str
) -> list[Change]:
    """The changes of one row. Raises ValueError with the reason."""
    found, missing = reader.row(row, path, brought=kind != RowKind.DELETE, nulls=reader.routes)
    changes = [Change(kind, found, sequence, missing)]
    if kind == RowKind.UPDATE_AFTER and old is not None:
        if not isinstance(old, dict):
            raise FieldError("'old' is no object")
        if reader.changes_key(old, found, missing, "old"):
            gone, unknown = reader.row({**row, **old}, "old", brought=False, nulls=reader.placing)
            changes.insert(0, Change(RowKind.DELETE, gone, sequence, unknown))
    return changes


def key_type(reader: RowReader) -> StructType:
    """The type that "old" is read as in bulk: the columns of the key, and those that name a table."""
    return StructType(
        tuple(NestedField(0, name, reader.converters[name].physical) for name in reader.placing)
    )


def has_nulls(reader: RowReader, values: pa.Array) -> Array:
    """(n,) bool: records that may have a null, not a missing field, for a column of key or table name.

    Arrow's JSON reader does not distinguish the two. (n,) `values` are the records' texts.
    """
    found: Array = np.zeros(len(values), dtype=bool)
    for part in reader.fields:
        if part.name in reader.placing and not part.required:
            # A name with other letters may be written with escapes.
            name = re.escape(part.name) if _PLAIN.fullmatch(part.name) else r'(?:[^"\\]|\\.)*'
            pattern = rf'"{name}"\s*:\s*null'.encode()
            found |= pc.match_substring_regex(values, pattern).to_numpy(zero_copy_only=False)
    return found
