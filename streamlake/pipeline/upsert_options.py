"""What the modes upsert and changelog need to know, checked against the table once per run of a query."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError, SchemaMismatchError
from streamlake.index.key_codec import KeyCodec
from streamlake.options import check_option_names, int_property, suggestion
from streamlake.pipeline.bucket_owner import AUTO, SHUFFLES
from streamlake.records import ROW_SEQUENCE
from streamlake.spec.partition_spec import UNPARTITIONED, PartitionSpec
from streamlake.spec.schema import Schema
from streamlake.spec.transforms import Void
from streamlake.spec.types import DoubleType, FloatType, NestedField, StringType
from streamlake.table.table import Table
from streamlake.write.upsert_key import UpsertKey
from streamlake.write.upsert_target import COPY_ON_WRITE, DELETE_MODES, EQUALITY, FAIL, UNSET_POLICIES

_LOG = logging.getLogger(__name__)

PREFIX = "streamlake.upsert."
BUCKETS = "streamlake.upsert.buckets"
TOMBSTONE_RETENTION = "streamlake.upsert.tombstone-retention-ms"
EQUALITY_ROWS = "streamlake.upsert.equality-deletes"
UNSET_VALUES = "streamlake.upsert.unset-values"
SHUFFLE = "streamlake.upsert.shuffle"
_KEY_ONLY, _WHOLE_ROW = "key", "row"
_WEEK_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True)
class UpsertOptions:
    """How changes go into one table. `row_kind` is the frame's column with row kinds, None: it has none. `buckets`
    is the number of tasks for an index that does not exist yet, and with `keeps_buckets` for no other, `unset_values` what becomes of changes that leave out a value
    which is nowhere to be found; `shuffle` says whether changes from Kafka are shuffled by key, see BucketOwner."""

    key: UpsertKey
    delete_mode: str
    row_kind: str | None
    buckets: int
    tombstone_retention_ms: int
    whole_row: bool
    unset_values: str = FAIL
    shuffle: str = AUTO
    keeps_buckets: bool = False

    @staticmethod
    def of(
        table: Table,
        *,
        key: Sequence[str],
        sequence_by: Sequence[str],
        row_kind: str | None,
        delete_mode: str,
        parallelism: int,
        write_parallelism: int | None = None,
    ) -> UpsertOptions:
        """`write_parallelism` is what the sink asks for, `parallelism` what there is otherwise, where the table says nothing.

        Raises InvalidOptionError, SchemaMismatchError for a key column that is not there, and
        FeatureUnsupportedError for a table that has no deletes."""
        if table.format_version < 2:
            raise FeatureUnsupportedError(
                f"{table.location} has format version 1, which knows no deletes: upgrade it to version 2 or 3 (table "
                "property format-version) to upsert into it"
            )
        properties = table.properties
        check_option_names(
            (name for name in properties if name.startswith(PREFIX)),
            (BUCKETS, TOMBSTONE_RETENTION, EQUALITY_ROWS, UNSET_VALUES, SHUFFLE),
            "table property",
        )
        names = tuple(key) or identifier_columns(table)
        if not names:
            raise InvalidOptionError(
                f"{table.location}: no key is known: name the columns in key=[...], or set the identifier fields of the "
                "table's schema"
            )
        rows = properties.get(EQUALITY_ROWS, _KEY_ONLY)
        if rows not in (_KEY_ONLY, _WHOLE_ROW):
            raise InvalidOptionError(
                f"the table property {EQUALITY_ROWS} is '{rows}'; it can be {_KEY_ONLY} or {_WHOLE_ROW}"
            )
        if delete_mode == COPY_ON_WRITE and ROW_SEQUENCE in sequence_by:
            raise InvalidOptionError(
                f"{table.location}: delete_mode 'copy-on-write' reads the place of each row in the database's log from the table: "
                "keep it there (include=['sequence'], sequence_by=['sequence']), or take delete_mode 'position'"
            )
        unset = properties.get(UNSET_VALUES, FAIL)
        if unset not in UNSET_POLICIES:
            raise unknown_value(f"the table property {UNSET_VALUES}", unset, UNSET_POLICIES)
        buckets = int_property(properties, BUCKETS, parallelism, minimum=1)
        shuffle = properties.get(SHUFFLE, AUTO)
        if shuffle not in SHUFFLES:
            raise unknown_value(f"the table property {SHUFFLE}", shuffle, SHUFFLES)
        if delete_mode == EQUALITY and sequence_by:
            _LOG.warning(
                "%s: delete_mode='equality' keeps no state, so sequence_by orders the changes inside a checkpoint only: a "
                "late change overwrites a newer row of an earlier checkpoint; delete_mode='position' compares with the table",
                table.location,
            )
        return UpsertOptions(
            key=UpsertKey.of(table.schema, names, sequence_by, table.location),
            delete_mode=delete_mode,
            row_kind=row_kind,
            buckets=write_parallelism or buckets,
            tombstone_retention_ms=int_property(properties, TOMBSTONE_RETENTION, _WEEK_MS, minimum=0),
            whole_row=rows == _WHOLE_ROW,
            unset_values=unset,
            shuffle=shuffle,
            keeps_buckets=write_parallelism is not None,
        )

    def equality_spec(self, table: Table) -> PartitionSpec:
        """The spec to write equality deletes for: a delete reaches its own partition only, so the table's spec will do
        where the key decides the partition and always has; else an unpartitioned one, whose deletes reach all."""
        if self.delete_mode != EQUALITY:
            return UNPARTITIONED
        sources = {part.source_id for part in table.spec.fields if not isinstance(part.transform, Void)}
        others = [spec for spec in table.specs.values() if spec.spec_id != table.spec.spec_id]
        if table.spec.is_unpartitioned or (sources <= set(self.key.key_ids) and not others):
            return table.spec
        for spec in others:
            if spec.is_unpartitioned:
                return spec
        raise FeatureUnsupportedError(
            f"{table.location}: an equality delete reaches only its own partition, and here a key does not always stay "
            "in one: it is not partitioned by key columns alone, or was partitioned otherwise before. Use "
            "delete_mode='position', or partition by key columns"
        )


def key_schema(schema: Schema, key: Sequence[str], row_kind: str | None, table: str) -> Schema:
    """The schema of a table that is created for a stream of changes: the key's columns are its identifier fields where
    the specification lets them (required, no floating point), and the column of the row kind is left out.

    Raises InvalidOptionError without a key or for a column that cannot be one, SchemaMismatchError for a column that
    the stream lacks."""
    if not key:
        raise InvalidOptionError(
            f"{table}: a table that is created for upserts needs a key: name its columns in key=[...]"
        )
    fields = tuple(part for part in schema.fields if part.name != row_kind)
    by_name = {part.name: part for part in fields}
    for name in key:
        if name not in by_name:
            near = suggestion(name, by_name)
            hint = f"Did you mean '{near}'?" if near else f"Its columns are {', '.join(by_name)}."
            raise SchemaMismatchError(
                f"{table}: the key column '{name}' is not a column of the stream. {hint}"
            )
    parts = [by_name[name] for name in key]
    KeyCodec(tuple(parts))
    fit = all(part.required and not isinstance(part.type, (FloatType, DoubleType)) for part in parts)
    identifiers = tuple(part.field_id for part in parts) if fit else ()
    return replace(schema, fields=fields, identifier_field_ids=identifiers)


def with_row_kind(schema: Schema, row_kind: str | None) -> Schema:
    """The columns of a table and, where it does not keep it, the text with the row kind: what its changes have."""
    if row_kind is None or row_kind in schema.column_names:
        return schema
    column = NestedField(schema.highest_field_id + 1, row_kind, StringType())
    return replace(schema, fields=(*schema.fields, column))


def require_delete_mode(mode: str) -> str:
    """The delete mode, if it is one. Raises InvalidOptionError."""
    if mode not in DELETE_MODES:
        raise unknown_value("delete_mode", mode, DELETE_MODES)
    return mode


def unknown_value(option: str, value: str, known: Sequence[str]) -> InvalidOptionError:
    """The error for a value that an option cannot have, with the nearest one and with all."""
    near = suggestion(value, known)
    hint = f". Did you mean '{near}'?" if near else ""
    return InvalidOptionError(f"{option} '{value}' is not known; it can be {', '.join(known)}{hint}")


def identifier_columns(table: Table) -> tuple[str, ...]:
    """The columns that are the identifier fields of the table's schema, in its order. Raises InvalidOptionError where
    one is nested: a key of the others alone would take different rows for the same."""
    schema = table.schema
    columns = {part.field_id for part in schema.fields}
    nested = [
        schema.names_by_id[field_id] for field_id in schema.identifier_field_ids if field_id not in columns
    ]
    if nested:
        raise InvalidOptionError(
            f"{table.location}: the identifier field {', '.join(nested)} is inside another column, and a key has whole "
            "columns only: name columns that tell rows apart in key=[...]"
        )
    return tuple(part.name for part in schema.fields if part.field_id in schema.identifier_field_ids)
