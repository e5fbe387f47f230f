"""The options of the modes upsert and changelog, checked against the table once per run of a query."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError, SchemaMismatchError
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.options import Property, check_option_names, int_property, suggestion
from streamlake.pipeline.kafka.bucket_owner import AUTO, SHUFFLES
from streamlake.records import ROW_SEQUENCE
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED, PartitionSpec
from streamlake.spec.partitioning.transforms import Void
from streamlake.spec.types.data_types import DoubleType, FloatType
from streamlake.spec.types.schema import Schema
from streamlake.table.table import Table
from streamlake.write.upsert.upsert_key import UpsertKey
from streamlake.write.upsert.upsert_target import (
    COPY_ON_WRITE,
    DELETE_MODES,
    EQUALITY,
    FAIL,
    MISSING_VALUE_POLICIES,
)

_LOG = logging.getLogger(__name__)

PREFIX = "streamlake.upsert."
BUCKETS = "streamlake.upsert.buckets"
TOMBSTONE_RETENTION = "streamlake.upsert.tombstone-retention-ms"
EQUALITY_ROWS = "streamlake.upsert.equality-deletes"
UNSET_VALUES = "streamlake.upsert.unset-values"
SHUFFLE = "streamlake.upsert.shuffle"
_KEY_ONLY, _WHOLE_ROW = "key", "row"
_WEEK_MS = 7 * 24 * 3600 * 1000

PROPERTIES = (
    Property(
        BUCKETS,
        "Spark's parallelism",
        "How many buckets a new key index gets, which is how many tasks write upserts.",
    ),
    Property(
        TOMBSTONE_RETENTION,
        "604800000",
        "How long the key index remembers the sequence values of deleted keys.",
    ),
    Property(
        UNSET_VALUES,
        FAIL,
        "What becomes of a change that leaves out a value which is nowhere to be found: `fail` stops the "
        "stream, `null` writes null, `reject` leaves the change out and counts it as `refused`.",
    ),
    Property(
        SHUFFLE,
        AUTO,
        "Whether changes from Kafka are shuffled by key: `auto` (only where a key comes through another "
        "partition), `always`, `never` (such a row stops the stream).",
    ),
    Property(
        EQUALITY_ROWS,
        _KEY_ONLY,
        "What an equality delete file holds: `key`, or `row` for the whole deleted row.",
    ),
)


@dataclass(frozen=True)
class UpsertOptions:
    """How changes are applied to one table.

    `row_kind` is the frame's row kind column (None: it has none). `buckets` is the number of tasks for an
    index that does not exist yet; with `keeps_buckets` an existing index keeps its own number of buckets.
    `unset_values` says what happens to changes with unavailable values that are found nowhere; `shuffle` says
    whether changes from Kafka are shuffled by key, see BucketOwner.
    """

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
        """The options of a sink, completed by the table's properties.

        `write_parallelism` is what the sink asks for, `parallelism` the default where neither sink nor table
        sets a number. Raises InvalidOptionError, SchemaMismatchError for a key column that is not there, and
        FeatureUnsupportedError for a table whose format version has no deletes.
        """
        if table.format_version < 2:
            raise FeatureUnsupportedError(
                f"{table.location} has format version 1, which knows no deletes: upgrade it to version 2 or "
                "3 (table property format-version) to upsert into it"
            )
        properties = table.properties
        check_option_names(
            (name for name in properties if name.startswith(PREFIX)),
            [each.name for each in PROPERTIES],
            "table property",
        )
        names = tuple(key) or identifier_columns(table)
        if not names:
            raise InvalidOptionError(
                f"{table.location}: no key is known: name the columns in key=[...], or set the identifier "
                "fields of the table's schema"
            )
        rows = properties.get(EQUALITY_ROWS, _KEY_ONLY)
        if rows not in (_KEY_ONLY, _WHOLE_ROW):
            raise InvalidOptionError(
                f"the table property {EQUALITY_ROWS} is '{rows}'; it can be {_KEY_ONLY} or {_WHOLE_ROW}"
            )
        if delete_mode == COPY_ON_WRITE and ROW_SEQUENCE in sequence_by:
            raise InvalidOptionError(
                f"{table.location}: delete_mode 'copy-on-write' reads the place of each row in the "
                "database's log from the table: keep it there (include=['sequence'], "
                "sequence_by=['sequence']), or take delete_mode 'position'"
            )
        unset = properties.get(UNSET_VALUES, FAIL)
        if unset not in MISSING_VALUE_POLICIES:
            raise unknown_value(f"the table property {UNSET_VALUES}", unset, MISSING_VALUE_POLICIES)
        buckets = int_property(properties, BUCKETS, parallelism, minimum=1)
        shuffle = properties.get(SHUFFLE, AUTO)
        if shuffle not in SHUFFLES:
            raise unknown_value(f"the table property {SHUFFLE}", shuffle, SHUFFLES)
        if delete_mode == EQUALITY and sequence_by:
            _LOG.warning(
                "%s: delete_mode='equality' keeps no state, so sequence_by orders the changes inside a "
                "checkpoint only: a late change overwrites a newer row of an earlier checkpoint; "
                "delete_mode='position' compares with the table",
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
        """The partition spec of equality deletes. A delete reaches only its own partition, so the table's
        spec is used where the key decides the partition and always has; else an unpartitioned one, whose
        deletes reach all partitions.

        Raises FeatureUnsupportedError where the table has neither.
        """
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
            f"{table.location}: an equality delete reaches only its own partition, and here a key does not "
            "always stay in one: it is not partitioned by key columns alone, or was partitioned otherwise "
            "before. Use delete_mode='position', or partition by key columns"
        )


def key_schema(schema: Schema, key: Sequence[str], row_kind: str | None, table: str) -> Schema:
    """The schema of a table that is created for a stream of changes: the key's columns are its identifier
    fields, which makes them required, unless one is a floating point number, which the specification does not
    allow. The row kind column is left out.

    Raises InvalidOptionError without a key or for a column that cannot be part of one, SchemaMismatchError
    for a column that the stream lacks.
    """
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
    if any(isinstance(part.type, (FloatType, DoubleType)) for part in parts):
        return replace(schema, fields=fields, identifier_field_ids=())
    identifiers = tuple(part.field_id for part in parts)
    fields = tuple(replace(part, required=part.required or part in parts) for part in fields)
    return replace(schema, fields=fields, identifier_field_ids=identifiers)


def require_delete_mode(mode: str) -> str:
    """The delete mode, if it is known. Raises InvalidOptionError."""
    if mode not in DELETE_MODES:
        raise unknown_value("delete_mode", mode, DELETE_MODES)
    return mode


def unknown_value(option: str, value: str, known: Sequence[str]) -> InvalidOptionError:
    """The error for a value that an option cannot have; it names the nearest value and all of them."""
    near = suggestion(value, known)
    hint = f". Did you mean '{near}'?" if near else ""
    return InvalidOptionError(f"{option} '{value}' is not known; it can be {', '.join(known)}{hint}")


def identifier_columns(table: Table) -> tuple[str, ...]:
    """The columns that are the identifier fields of the table's schema, in its order. Raises
    InvalidOptionError where one is nested: a key of the others alone would treat different rows as the
    same.
    """
    schema = table.schema
    columns = {part.field_id for part in schema.fields}
    nested = [
        schema.names_by_id[field_id] for field_id in schema.identifier_field_ids if field_id not in columns
    ]
    if nested:
        raise InvalidOptionError(
            f"{table.location}: the identifier field {', '.join(nested)} is inside another column, and a key "
            "has whole columns only: name columns that tell rows apart in key=[...]"
        )
    return tuple(part.name for part in schema.fields if part.field_id in schema.identifier_field_ids)
