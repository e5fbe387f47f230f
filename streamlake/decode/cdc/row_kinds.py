"""Row kinds from a column that says what each change does, whatever envelope the changes come from.

Codes are those of `records.RowKind`; texts are the short names of row kinds and the words of the usual change
streams. Invariant: nothing is guessed. An unknown value is an error, because a delete mistaken for an insert
is lost data.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import SchemaMismatchError
from streamlake.formats.arrow.arrow_transforms import plain_array
from streamlake.records import RowKind
from streamlake.spec.types.data_types import NestedField, StringType
from streamlake.spec.types.schema import Schema

_UNKNOWN = -1

SPELLINGS: dict[RowKind, tuple[str, ...]] = {
    # The last values of each list are Debezium's c and r (a row that a snapshot read) and Maxwell's bootstrap
    # rows.
    RowKind.INSERT: ("+I", "I", "insert", "c", "r", "create", "read", "bootstrap-insert"),
    RowKind.UPDATE_BEFORE: ("-U", "update_before", "update_preimage"),
    RowKind.UPDATE_AFTER: ("+U", "U", "update", "update_after", "update_postimage", "upsert"),
    RowKind.DELETE: ("-D", "D", "delete"),
}
"""The texts that stand for each row kind; upper and lower case mean the same."""

_KINDS = {text.lower(): kind for kind, texts in SPELLINGS.items() for text in texts}


def row_kinds(column: pa.Array | pa.ChunkedArray, where: str) -> pa.Int8Array:
    """The RowKind code of each of n rows, without nulls.

    `column` holds integers 0 to 3 or texts of SPELLINGS. Raises SchemaMismatchError for any other value, a
    null or another type; the error names `where` (the table and column) and the row, counted from 0.
    """
    array = plain_array(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    if array.null_count:
        raise _refused(where, array.is_null().index(True).as_py(), "null")
    if pa.types.is_integer(array.type):
        codes = _checked_codes(array, where)
    elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type) or _is_view(array.type):
        codes = _text_codes(array, where)
    else:
        raise SchemaMismatchError(
            f"{where}: a row kind cannot be read from the type {array.type}. {_known()}"
        )
    return codes.cast(pa.int8())


def known_row_kinds(column: pa.Array, where: str) -> tuple[pa.Int8Array, dict[int, str]]:
    """The RowKind code of each of n rows, and {row: reason} for values without one, which get UPDATE_AFTER.

    Raises SchemaMismatchError for another type, as `row_kinds` does.
    """
    try:
        return row_kinds(column, where), {}
    except SchemaMismatchError:
        row_kinds(column.slice(0, 0), where)
    encoded = pc.dictionary_encode(plain_array(column))
    codes: Any = np.full(len(encoded.dictionary) + 1, _UNKNOWN, dtype=np.int8)
    for at in range(len(encoded.dictionary)):
        with contextlib.suppress(SchemaMismatchError):
            codes[at] = row_kinds(encoded.dictionary.slice(at, 1), where)[0].as_py()
    found = codes[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)]
    unknown = {
        int(row): f"{column[int(row)].as_py()!r} is not a row kind"
        for row in np.flatnonzero(found == _UNKNOWN)
    }
    return pa.array(np.where(found == _UNKNOWN, np.int8(RowKind.UPDATE_AFTER), found), pa.int8()), unknown


def _checked_codes(array: pa.Array, where: str) -> pa.Array:
    wrong = pc.or_(pc.less(array, int(min(RowKind))), pc.greater(array, int(max(RowKind))))
    row = wrong.index(True).as_py()
    if row >= 0:
        raise _refused(where, row, str(array[row].as_py()))
    return array


def _text_codes(array: pa.Array, where: str) -> pa.Array:
    encoded = pc.dictionary_encode(array.cast(pa.large_string()))
    kinds: Any = np.array(
        [_KINDS.get(text.strip().lower(), _UNKNOWN) for text in encoded.dictionary.to_pylist()], dtype=np.int8
    )
    codes = pa.array(kinds).take(encoded.indices)
    row = codes.index(_UNKNOWN).as_py()
    if row >= 0:
        raise _refused(where, row, repr(array[row].as_py()))
    return codes


def _is_view(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(type_))


def _refused(where: str, row: int, value: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"{where}, row {row}: {value} is not a row kind. {_known()}")


def _known() -> str:
    listed = "; ".join(
        f"{kind.value} or {', '.join(texts)} for {kind.symbol}" for kind, texts in SPELLINGS.items()
    )
    return (
        f"Known are {listed} (in upper or lower case). Map other values to these in the stream, and filter "
        "what changes no row, such as truncates and schema changes."
    )


def with_row_kind(schema: Schema, row_kind: str | None) -> Schema:
    """The columns of a table's changes: the table's, and the text `row_kind` unless it is one of them."""
    if row_kind is None or row_kind in schema.column_names:
        return schema
    column = NestedField(schema.highest_field_id + 1, row_kind, StringType())
    return replace(schema, fields=(*schema.fields, column))
