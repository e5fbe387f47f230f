"""Decoders of a schema registry's wire format: Avro by each record's own schema, and JSON without its header.

Each schema id of a batch is decoded with the plan from that schema to the table's columns. The rows come back
in the records' order. Invariant: only ids that records carry are requested from the registry, and a schema
that does not fit the table is an error of the records that carry it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamlake.decode.avro.avro_decoder import AvroDecoder, Failure, Payloads
from streamlake.decode.avro.avro_schema import AvroType
from streamlake.decode.avro.avro_types import schema_from_avro
from streamlake.decode.json.json_decoder import JsonDecoder
from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.registry.confluent_framing import HEADER_BYTES, schema_ids, unframed, without_header
from streamlake.decode.registry.schema_registry import UnknownSchemaError
from streamlake.decode.values.new_fields import Watch, require_columns
from streamlake.errors import (
    FeatureUnsupportedError,
    InvalidOptionError,
    NewSchemaError,
    SchemaMismatchError,
)
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.schema import Schema

Array = np.ndarray[Any, Any]
_UNUSABLE_KEPT = 1_000


class NamedSchema(Protocol):
    """A schema, and its name in messages."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def avro(self) -> AvroType:
        """Raises FeatureUnsupportedError for another kind, InvalidOptionError for an invalid schema."""
        ...


class SchemasById(Protocol):
    """The part of a registry that the decoder needs."""

    def by_id(self, schema_id: int) -> NamedSchema:
        """Raises UnknownSchemaError, and SourceError when the registry does not answer."""
        ...


class ConfluentAvroDecoder:
    """Decodes to the columns of `schema`.

    `reader` (the reader's own Avro schema) adds aliases, defaults and symbols. With a `watch`, records of a
    schema with more fields than the columns raise NewSchemaError.
    """

    def __init__(
        self,
        schema: Schema,
        registry: SchemasById,
        reader: AvroType | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._watch = watch
        self._schema = schema
        self._registry = registry
        self._reader = reader
        self._decoders: dict[int, AvroDecoder] = {}
        self._unusable: dict[int, str] = {}

    def decode(self, values: pa.Array, failure: Failure) -> list[pa.Array]:
        """One array per field of the schema, for a binary array without nulls.

        For a record that cannot be decoded, raises what `failure` makes of its index and reason. Raises
        SourceError when the registry does not answer.
        """
        if not len(values):
            return [pa.nulls(0, arrow_type(part.type)) for part in self._schema.fields]
        ids = schema_ids(values, failure)
        payloads = Payloads.of(values, HEADER_BYTES)
        used = np.unique(ids)
        if len(used) == 1:
            return self._decoder(int(used[0]), 0, failure).decode_payloads(payloads, failure)
        runs, rows = [], []
        for schema_id in used:
            mine = np.flatnonzero(ids == schema_id)
            decoder = self._decoder(int(schema_id), int(mine[0]), failure)
            runs.append(decoder.decode_payloads(payloads.take(mine), failure))
            rows.append(mine)
        order = pa.array(np.argsort(np.concatenate(rows), kind="stable"))
        return [pa.concat_arrays(list(parts)).take(order) for parts in zip(*runs, strict=True)]

    def absent(self, values: pa.Array, columns: Sequence[pa.Array]) -> dict[str, Array]:
        """See ValueDecoder: the columns that a record's own schema does not have."""
        ids = schema_ids(values, unframed)
        found: dict[str, Array] = {}
        for schema_id in np.unique(ids).tolist():
            for name in self._decoders[schema_id].lacking:
                found[name] = found.get(name, np.zeros(len(values), dtype=bool)) | (ids == schema_id)
        return found

    def _decoder(self, schema_id: int, first: int, failure: Failure) -> AvroDecoder:
        if schema_id in self._unusable:
            raise failure(first, self._unusable[schema_id])
        if schema_id not in self._decoders:
            try:
                found = self._registry.by_id(schema_id)
                if self._watch is not None:
                    self._require_columns(found.avro, found.name)
                self._decoders[schema_id] = AvroDecoder(
                    self._schema, found.avro, self._reader, where=found.name
                )
            except NewSchemaError:
                raise
            except (
                UnknownSchemaError,
                SchemaMismatchError,
                FeatureUnsupportedError,
                InvalidOptionError,
            ) as error:
                # Requested once: damaged records may name any id, and the next record of this id is about to
                # be tried.
                while len(self._unusable) >= _UNUSABLE_KEPT:
                    del self._unusable[next(iter(self._unusable))]
                self._unusable[schema_id] = str(error)
                raise failure(first, str(error)) from error
        return self._decoders[schema_id]

    def _require_columns(self, avro: AvroType, name: str) -> None:
        """Raises NewSchemaError for new fields.

        With a reader's own schema, fields that it leaves out are not wanted.
        """
        if self._reader is None:
            require_columns(self._schema, schema_from_avro(avro, name), self._watch, name)


class ConfluentJsonDecoder:
    """Decodes JSON after the header to the columns of `schema`; the registry is not contacted."""

    def __init__(self, schema: Schema, options: JsonOptions) -> None:
        self._decoder = JsonDecoder(schema, options)

    def decode(self, values: pa.Array, failure: Failure) -> list[pa.Array]:
        """See JsonDecoder.decode."""
        schema_ids(values, failure)
        return self._decoder.decode(without_header(values), failure)

    def absent(self, values: pa.Array, columns: Sequence[pa.Array]) -> dict[str, Array]:
        """See JsonDecoder.absent."""
        return self._decoder.absent(without_header(values), columns)
