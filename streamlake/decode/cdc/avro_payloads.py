"""Debezium's payloads in Avro with a schema registry: a wire format header, then the writer's record.

The `PayloadForm` of Debezium's records in Avro. Records and keys carry the ids of their own schemas, each
fetched from the registry once. Invariant: a record is read with exactly the schema of its id. A record whose
schema cannot be fetched is refused on its own.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake import clock
from streamlake.decode.avro.avro_columns import AvroColumns, avro_columns
from streamlake.decode.avro.avro_connect import connect_schema_of
from streamlake.decode.avro.avro_decoder import Payloads as Encoded
from streamlake.decode.avro.avro_plain import PlainReader
from streamlake.decode.avro.avro_schema import AvroRecord
from streamlake.decode.cdc.json_payloads import payload_of
from streamlake.decode.cdc.payloads import Array, Path
from streamlake.decode.json.json_values import parse_object
from streamlake.decode.registry.confluent_framing import HEADER_BYTES, schema_ids
from streamlake.decode.registry.schema_registry import SchemaRegistry, UnknownSchemaError
from streamlake.decode.values.connect_schema import ConnectSchema
from streamlake.decode.values.envelope import Records
from streamlake.decode.values.new_fields import Watch
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.formats.arrow.arrow_schema import arrow_type
from streamlake.spec.types.data_types import NestedField, StructType

_SAMPLES = 8
_PLANS = 16
_SHOWN = 3
_REFUSED_SECONDS = 30.0
_REFUSED_KEPT = 1_000


@dataclass(eq=False)
class _Writer:
    """One schema of the registry: its meaning, and the plans made for it."""

    schema_id: int
    name: str
    avro: AvroRecord
    connect: ConnectSchema
    plain: PlainReader
    plans: dict[tuple[NestedField, ...], AvroColumns] = field(default_factory=dict)

    def columns(self, fields: Sequence[NestedField]) -> AvroColumns:
        """The reader of `fields`, made once. Raises NotBulkError."""
        key = tuple(fields)
        if key not in self.plans:
            if len(self.plans) >= _PLANS:
                self.plans.clear()
            self.plans[key] = avro_columns(self.avro, key, self.name)
        return self.plans[key]


@dataclass(frozen=True, eq=False)
class AvroPayloads:
    """Records of one schema id."""

    records: Records
    writer: _Writer
    complete = True

    @property
    def connect(self) -> ConnectSchema:
        """The Connect schema that the Avro schema stands for."""
        return self.writer.connect

    @property
    def identity(self) -> Hashable:
        """The schema's id."""
        return self.writer.schema_id

    def samples(self) -> list[dict[str, Any]]:
        """See Payloads.samples."""
        count = len(self.records)
        found = []
        for at in np.unique(np.linspace(0, count - 1, min(_SAMPLES, count)).astype(np.int64)):
            with suppress(ValueError):
                found.append(self.writer.plain.value(self.records.values[int(at)].as_py(), HEADER_BYTES))
        return found

    def first_change(self) -> list[dict[str, Any]]:
        """See Payloads.first_change: the records of one schema are either all changes or none."""
        return []

    def take(self, chosen: Array) -> AvroPayloads:
        """See Payloads.take."""
        return AvroPayloads(self.records.take(chosen), self.writer)

    def read(
        self, fields: Sequence[NestedField], watch: Watch | None = None, watched: Path = ()
    ) -> list[pa.Array]:
        """See Payloads.read. The schema describes every field, so nothing is watched."""
        if not len(self.records):
            return [pa.nulls(0, part.type) for part in arrow_type(StructType(tuple(fields)))]
        return self.writer.columns(fields).read(Encoded.of(self.records.values, HEADER_BYTES))


class AvroPayloadForm:
    """Finds payloads by their schema ids."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._writers: dict[int, _Writer] = {}
        self._refused: dict[int, tuple[str, float]] = {}

    def runs(self, records: Records) -> Iterator[AvroPayloads]:
        """See PayloadForm.runs. Raises SourceError when the registry does not answer."""
        if not len(records):
            return
        ids = schema_ids(records.values, lambda _, reason: NotBulkError(reason))
        for schema_id in np.unique(ids):
            try:
                writer = self._writer(int(schema_id))
            except ValueError as error:
                raise NotBulkError from error
            mine = np.flatnonzero(ids == schema_id)
            yield AvroPayloads(records if len(mine) == len(records) else records.take(mine), writer)

    def payload(self, value: bytes) -> tuple[Any, ConnectSchema | None]:
        """See PayloadForm.payload. JSON is accepted too: headers of key changes are often written in it.

        Raises SourceError when the registry does not answer.
        """
        if value[:1] == b"{":
            return payload_of(parse_object(value))
        values = pa.array([value], pa.binary())
        writer = self._writer(int(schema_ids(values, lambda _, reason: ValueError(reason))[0]))
        return writer.plain.value(value, HEADER_BYTES), writer.connect

    def shown_schemas(
        self, records: Sequence[tuple[bytes | None, bytes]]
    ) -> Sequence[tuple[bytes | None, bytes]]:
        """See PayloadForm.shown_schemas."""
        last: defaultdict[bytes, deque[int]] = defaultdict(lambda: deque(maxlen=_SHOWN))
        for at, (key, value) in enumerate(records):
            last[value[:HEADER_BYTES]].append(at)
            if key is not None:
                last[b"key" + key[:HEADER_BYTES]].append(at)
        return [records[at] for at in sorted({at for places in last.values() for at in places})]

    def _writer(self, schema_id: int) -> _Writer:
        """The schema of this id. Raises ValueError with the reason why its records cannot be read."""
        known = self._writers.get(schema_id)
        if known is not None:
            return known
        reason, until = self._refused.get(schema_id, ("", 0.0))
        if clock.monotonic() < until:
            raise ValueError(reason)
        try:
            found = self._registry.by_id(schema_id)
            avro = found.avro
            if not isinstance(avro, AvroRecord):
                raise ValueError(f"{found.name} is {avro}, and no record")
            writer = _Writer(schema_id, found.name, avro, connect_schema_of(avro), PlainReader(avro))
        except (UnknownSchemaError, FeatureUnsupportedError, InvalidOptionError, ValueError) as error:
            while len(self._refused) >= _REFUSED_KEPT:
                del self._refused[next(iter(self._refused))]
            self._refused[schema_id] = str(error), clock.monotonic() + _REFUSED_SECONDS
            raise ValueError(str(error)) from error
        self._writers[schema_id] = writer
        return writer
