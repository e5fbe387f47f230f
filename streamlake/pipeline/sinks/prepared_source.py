"""A KafkaSource prepared for one table: its schema, and the key, row kinds and order of its changes.

Place in the flow: once per table, before the first micro-batch. Invariant: what the user gave is never
replaced by what a sample shows, and the settings that were given stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

from streamlake.decode.cdc.row_kinds import with_row_kind
from streamlake.errors import InvalidOptionError, TableNotFoundError
from streamlake.pipeline.kafka.sampled_schema import changed_rows, with_inferred_schema
from streamlake.pipeline.runs.upsert_options import identifier_columns
from streamlake.pipeline.sinks.arguments.default_sequence import sequence_columns
from streamlake.pipeline.sinks.sink_settings import ChangeSettings, SinkSettings, require_row_kind
from streamlake.records import ROW_KIND
from streamlake.source.kafka_source import KafkaSource
from streamlake.table.table import Table
from streamlake.write.upsert.upsert_target import EQUALITY, UPSERT


def require_changes(source: KafkaSource, changes: ChangeSettings) -> None:
    """Raises InvalidOptionError where the source's records carry updates, deletes or partial rows that the
    mode cannot apply, for a mode that needs row kinds where there are none, and for a `row_kind` column where
    the records say themselves what they do.
    """
    if source.settings.partial_update and (changes.mode != UPSERT or changes.delete_mode == EQUALITY):
        raise InvalidOptionError(
            "partial-update takes the fields that a record does not have from the row that it replaces, "
            f"which mode '{changes.mode}' with delete_mode '{changes.delete_mode}' does not look for; use "
            "mode 'upsert' with delete_mode 'position' or 'copy-on-write'"
        )
    require_row_kind(changes, source)
    if not source.has_row_kinds:
        return
    if not source.is_envelope and changes.mode != UPSERT:
        raise InvalidOptionError(
            f"null-value=delete brings deletes, which mode '{changes.mode}' cannot carry out; use mode "
            "'upsert'"
        )
    if not source.is_envelope and changes.row_kind not in (None, ROW_KIND):
        raise InvalidOptionError(
            f"row_kind is '{changes.row_kind}', but with null-value=delete a record's kind is whether it "
            "has a value; leave one of them out"
        )
    if not changes.is_keyed:
        raise InvalidOptionError(
            f"the format '{source.format}' brings updates and deletes, which mode '{changes.mode}' cannot "
            "carry out; use mode 'upsert'"
        )
    if changes.row_kind not in (None, ROW_KIND):
        raise InvalidOptionError(
            f"row_kind is '{changes.row_kind}', but records of the format '{source.format}' say themselves "
            "what they do; leave it out"
        )


def prepared_source(settings: SinkSettings, source: KafkaSource) -> tuple[SinkSettings, KafkaSource]:
    """The source with the schema it was given, else the table's, else one inferred from a sample; and the
    settings with the key, the row kind column and the sequence columns of its changes. For a change stream
    into a table without a key, the key is the one that its messages name.

    Raises InvalidOptionError for a source that does not fit the mode, and what opening the table and reading
    a sample raise.
    """
    changes = settings.changes
    require_changes(source, changes)
    table: Table | None
    try:
        table = settings.opened_table()
    except TableNotFoundError:
        table = None
    key, row_kind, sequence = changes.key, changes.row_kind, changes.sequence_given or ()
    sample = None
    if source.has_row_kinds:
        row_kind = ROW_KIND
        sequence = sequence_columns(changes.sequence_given, source, changes.mode, changes.delete_mode)
        if not key and (table is None or not identifier_columns(table)):
            if not source.is_envelope:
                raise InvalidOptionError(
                    "null-value=delete deletes the row of a record's key: name its columns in key"
                )
            sample = changed_rows(source)
            key = sample.key
        elif not key and table is not None:
            # Decoders recognise a changed key by its columns.
            key = identifier_columns(table)
    if source.schema is None:
        if table is not None:
            source = source.with_schema(with_row_kind(table.schema, row_kind))
        else:
            source = with_inferred_schema(source) if sample is None else source.with_schema(sample.schema)
    resolved = replace(changes, key=key, row_kind=row_kind, sequence_by=sequence)
    return replace(settings, changes=resolved), source
