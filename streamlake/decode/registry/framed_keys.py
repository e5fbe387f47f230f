"""Message keys in Avro that were serialized with a schema registry, as the key columns of a table.

A key is a record with these columns, or for a single column a value alone, as Kafka Connect's converter
writes keys that are no structures. Invariant: a key that is not read whole names no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamlake.decode.avro.avro_schema import AvroField, AvroRecord, AvroType
from streamlake.decode.registry.confluent_decoder import ConfluentAvroDecoder
from streamlake.decode.registry.confluent_framing import HEADER_BYTES
from streamlake.decode.registry.registry_options import RegistryOptions, without_registry
from streamlake.decode.registry.schema_registry import UnknownSchemaError, schema_registry
from streamlake.decode.values.envelope import Array
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.formats.arrow.sifting import SpanError, sifted
from streamlake.spec.types.schema import Schema

_LONG_BYTES = 8


@dataclass(frozen=True)
class _KeySchema:
    """The schema of a key as that of a record."""

    name: str
    avro: AvroType


class FramedKeys:
    """Reads keys to the columns of `schema`; `options` are those of the source, with its registry's.

    Raises InvalidOptionError for options that the registry does not have.
    """

    def __init__(self, schema: Schema, options: Mapping[str, str]) -> None:
        fields = tuple(replace(part, required=True) for part in schema.fields)
        self._schema = replace(schema, fields=fields)
        self._registry = schema_registry(RegistryOptions.parse(without_registry(options)[1]))
        self._decoder = ConfluentAvroDecoder(self._schema, self)

    def takes(self, key: bytes | None) -> bool:
        """Whether a key is in the registry's wire format.

        A key of eight bytes may be a number as well: then it is one unless the registry has its schema.
        Raises SourceError when the registry does not answer.
        """
        if key is None or len(key) <= HEADER_BYTES or key[0] != 0:
            return False
        if len(key) != _LONG_BYTES or len(self._schema.fields) != 1:
            return True
        schema_id = int.from_bytes(key[1:HEADER_BYTES], "big")
        try:
            return schema_id > 0 and bool(self._registry.by_id(schema_id).name)
        except UnknownSchemaError:
            return False

    def by_id(self, schema_id: int) -> _KeySchema:
        """See SchemaRegistry; a single value is the only field of a record, which is written the same way."""
        found = self._registry.by_id(schema_id)
        avro = found.avro
        if not isinstance(avro, AvroRecord) and len(self._schema.fields) == 1:
            avro = AvroRecord("record", "Key", (AvroField(self._schema.fields[0].name, avro),))
        return _KeySchema(found.name, avro)

    def read(self, keys: pa.Array) -> tuple[list[pa.Array], Array, list[tuple[int, str]]]:
        """The key columns, the places of the keys that they are of, and (place, reason) for the others."""
        failed: list[tuple[int, str]] = []
        parts = sifted(
            len(keys),
            lambda low, high: self._decoder.decode(keys.slice(low, high - low), SpanError),
            lambda at, reason: failed.append((at, reason)),
        )
        kept: Array = np.concatenate(
            [np.arange(low, high) for low, high, _ in parts] or [np.zeros(0, dtype=np.int64)]
        )
        if not parts:
            return [pa.nulls(0, arrow_type(part.type)) for part in self._schema.fields], kept, failed
        return (
            [pa.concat_arrays(list(columns)) for columns in zip(*(of for _, _, of in parts), strict=True)],
            kept,
            failed,
        )
