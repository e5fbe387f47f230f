"""The upsert key: the key columns, the columns that order changes of a key, and their codecs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.index.keys.key_codec import KeyCodec
from streamlake.index.keys.sequence_values import SequenceCodec
from streamlake.options import suggestion
from streamlake.records import ROW_SEQUENCE
from streamlake.spec.types.data_types import LongType, NestedField
from streamlake.spec.types.schema import Schema

SEQUENCE_FIELD = NestedField(0, ROW_SEQUENCE, LongType())
"""The field of ROW_SEQUENCE. No column of a table has its id."""


@dataclass(frozen=True)
class UpsertKey:
    """Key and sequence columns of a table by name, top level, with the codecs for their values.

    Can be pickled.

    `sequence_by` may be ROW_SEQUENCE, a column of the changes and not of the table. Then the sequence values
    of rows that are read from the table are not known.
    """

    columns: tuple[str, ...]
    codec: KeyCodec
    sequence_by: tuple[str, ...] = ()
    sequence_codec: SequenceCodec | None = None

    @staticmethod
    def of(schema: Schema, columns: Sequence[str], sequence_by: Sequence[str], table: str) -> UpsertKey:
        """The upsert key of a table with `schema`; `table` is its name in messages.

        Raises SchemaMismatchError for a column that the table lacks, InvalidOptionError for
        a type that cannot be compared.
        """
        key = tuple(_field(schema, name, "key", table) for name in columns)
        sequence = tuple(
            SEQUENCE_FIELD if name == ROW_SEQUENCE else _field(schema, name, "sequence_by", table)
            for name in sequence_by
        )
        if SEQUENCE_FIELD in sequence and len(sequence) > 1:
            raise InvalidOptionError(
                f"{table}: '{ROW_SEQUENCE}' orders changes alone, or is left out of sequence_by"
            )
        return UpsertKey(
            tuple(columns), KeyCodec(key), tuple(sequence_by), SequenceCodec(sequence) if sequence else None
        )

    @property
    def key_ids(self) -> tuple[int, ...]:
        """The field ids of the key columns, in their order."""
        return tuple(part.field_id for part in self.codec.fields)

    @property
    def sequence_ids(self) -> tuple[int, ...]:
        """The field ids of the sequence columns, in their order; empty when there are none."""
        return (
            () if self.sequence_codec is None else tuple(part.field_id for part in self.sequence_codec.fields)
        )

    @property
    def key_types(self) -> tuple[str, ...]:
        """The types of the key columns as text, in their order."""
        return tuple(str(part.type) for part in self.codec.fields)

    @property
    def sequence_types(self) -> tuple[str, ...]:
        """The types of the sequence columns as text, in their order; empty when there are none."""
        return (
            ()
            if self.sequence_codec is None
            else tuple(str(part.type) for part in self.sequence_codec.fields)
        )

    @property
    def index_columns(self) -> tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...], tuple[str, ...]]:
        """What an index is built over: ids and types of the columns. Their names may change."""
        return self.key_ids, self.key_types, self.sequence_ids, self.sequence_types

    @property
    def keeps_sequence_values(self) -> bool:
        """Whether the sequence value of a row can be read from the row in the table."""
        return ROW_SEQUENCE not in self.sequence_by

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """Key and sequence columns that the table has, each once."""
        return tuple(name for name in self.all_columns if name != ROW_SEQUENCE)

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Key and sequence columns, each once."""
        return tuple(dict.fromkeys((*self.columns, *self.sequence_by)))


def _field(schema: Schema, name: str, option: str, table: str) -> NestedField:
    for part in schema.fields:
        if part.name == name:
            return part
    near = suggestion(name, schema.column_names)
    hint = f"Did you mean '{near}'?" if near else f"Its columns are {', '.join(schema.column_names)}."
    raise SchemaMismatchError(f"{table}: the {option} column '{name}' is not a column of the table. {hint}")
