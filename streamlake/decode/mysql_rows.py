"""Changes whose row and old values stand side by side, as Canal and Maxwell write those of MySQL.

Used by their decoders. "old" holds the former values of changed columns only, so the row that an update takes out is
the new row with the old values laid over it. Invariant: it is taken out only where its key differs.
"""

from __future__ import annotations

from typing import Any

from streamlake.decode.envelope import Change
from streamlake.decode.json_values import FieldError
from streamlake.decode.row_reader import RowReader
from streamlake.records import RowKind
from streamlake.spec.types import NestedField, StructType


def row_changes(
    reader: RowReader, kind: RowKind, row: Any, old: Any, sequence: int | None, path: str
) -> list[Change]:
    """The changes of one row. Raises ValueError with the reason."""
    found, unset = reader.row(row, path, brought=kind != RowKind.DELETE)
    changes = [Change(kind, found, sequence, unset)]
    if kind == RowKind.UPDATE_AFTER and old is not None:
        if not isinstance(old, dict):
            raise FieldError("'old' is no object")
        keys = [name for name in reader.key if old.get(name) is not None]
        was = {name: reader.readings[name].value(old[name], f"old.{name}") for name in keys}
        if any(was[name] != found[name] for name in keys):
            gone, unknown = reader.row({**row, **old}, "old", brought=False)
            changes.insert(0, Change(RowKind.DELETE, gone, sequence, unknown))
    return changes


def key_type(reader: RowReader) -> StructType:
    """What "old" is read as in bulk: the columns of the key."""
    return StructType(tuple(NestedField(0, name, reader.readings[name].physical) for name in reader.key))
