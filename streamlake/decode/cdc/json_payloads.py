"""JSON records of Kafka Connect, with or without a schema around each payload (`schemas.enable`).

The `PayloadForm` of Debezium's records in JSON. A record's schema is by far its longest part, and the same in
run after run of records. It is parsed once, and recognised as a common prefix. Invariant: what is cut out of
a record is exactly its payload, or the record is left to be read one by one.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlake.decode.cdc.payloads import Array, Path
from streamlake.decode.json.json_columns import JsonColumns
from streamlake.decode.json.json_options import JsonOptions
from streamlake.decode.json.json_values import parse_object
from streamlake.decode.json.samples import samples
from streamlake.decode.values.connect_schema import ConnectSchema
from streamlake.decode.values.envelope import Records
from streamlake.decode.values.new_fields import Watch, watching
from streamlake.decode.values.record_limits import RecordLimits, current_limits
from streamlake.decode.values.text_columns import NotBulkError
from streamlake.spec.types.data_types import NestedField

_START = re.compile(r'\{\s*"schema"\s*:\s*')
_PAYLOAD = re.compile(r'\s*,\s*"payload"\s*:\s*')
_KNOWN = 64
_COLUMNS = 16
_RUNS = 16


Asked = tuple[tuple[NestedField, ...], Watch | None, Path, RecordLimits]
"""The arguments of `Payloads.read`, and the limits that hold for what is remembered of records."""


@dataclass(frozen=True, eq=False)
class JsonPayloads:
    """The payloads `values` of records that all have the schema `connect`.

    `identity` is the prefix that all records share. `columns_of` gives the reader of some fields, which
    remembers what records look like.
    """

    records: Records
    values: pa.Array
    connect: ConnectSchema | None
    identity: bytes
    columns_of: Callable[[Asked], JsonColumns]
    complete = False

    def samples(self) -> list[dict[str, Any]]:
        """See Payloads.samples."""
        return samples(self.values)

    def first_change(self) -> list[dict[str, Any]]:
        """See Payloads.first_change."""
        at = pc.match_substring(self.values, '"connector"').index(True).as_py()
        return samples(self.values.slice(at, 1)) if at >= 0 else []

    def take(self, chosen: Array) -> JsonPayloads:
        """See Payloads.take."""
        values = self.values.take(pa.array(chosen, pa.int64()))
        return replace(self, records=self.records.take(chosen), values=values)

    def read(
        self, fields: Sequence[NestedField], watch: Watch | None = None, watched: Path = ()
    ) -> list[pa.Array]:
        """See Payloads.read."""
        limits = current_limits()
        limits = limits.inside() if self.identity else limits
        with limits.applied():
            return self.columns_of((tuple(fields), watch, watched, limits)).read(self.values)


class JsonPayloadForm:
    """Finds payloads; remembers the schemas that it has seen, and what payloads look like."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, ConnectSchema | None] = OrderedDict()
        self._columns: OrderedDict[Asked, JsonColumns] = OrderedDict()

    def runs(self, records: Records) -> Iterator[JsonPayloads]:
        """See PayloadForm.runs. Raises NotBulkError when a record is written in another way."""
        for _ in range(_RUNS):
            if not len(records):
                return
            beginning, connect = self._beginning(records.values[0].as_py())
            if not beginning:
                if pc.any(pc.match_substring_regex(records.values, r'^\s*\{\s*"schema"\s*:')).as_py():
                    raise NotBulkError
                yield JsonPayloads(records, records.values, None, b"", self._columns_of)
                return
            alike = pc.starts_with(records.values, beginning)
            chosen = np.flatnonzero(alike.to_numpy(zero_copy_only=False))
            here = records if len(chosen) == len(records) else records.take(chosen)
            if not pc.all(pc.ends_with(here.values, b"}")).as_py():
                raise NotBulkError
            values = pc.binary_slice(here.values, len(beginning), -1)
            yield JsonPayloads(here, values, connect, beginning, self._columns_of)
            if len(chosen) == len(records):
                return
            records = records.take(np.setdiff1d(np.arange(len(records)), chosen))
        raise NotBulkError

    def payload(self, value: bytes) -> tuple[Any, ConnectSchema | None]:
        """See PayloadForm.payload."""
        return payload_of(parse_object(value))

    def shown_schemas(
        self, records: Sequence[tuple[bytes | None, bytes]]
    ) -> Sequence[tuple[bytes | None, bytes]]:
        """See PayloadForm.shown_schemas."""
        return records

    def _columns_of(self, asked: Asked) -> JsonColumns:
        known = self._columns.get(asked)
        if known is None:
            fields, watch, watched, _ = asked
            known = JsonColumns(fields, JsonOptions(), strict_names=False, **watching(watch, watched))
            self._columns[asked] = known
            while len(self._columns) > _COLUMNS:
                self._columns.popitem(last=False)
        self._columns.move_to_end(asked)
        return known

    def _beginning(self, value: bytes) -> tuple[bytes, ConnectSchema | None]:
        """A record's text up to its payload, and its schema; empty text for a payload without schema."""
        for known, schema in self._known.items():
            if value.startswith(known):
                self._known.move_to_end(known, last=False)
                return known, schema
        try:
            text = value.decode()
            start = _START.match(text)
            if start is None:
                return b"", None
            found, end = json.JSONDecoder().raw_decode(text, start.end())
            payload = _PAYLOAD.match(text, end)
            if payload is None:
                raise NotBulkError
            connect = None if found is None else ConnectSchema.of(found)
        except (ValueError, RecursionError) as error:
            raise NotBulkError from error
        beginning = text[: payload.end()].encode()
        self._known[beginning] = connect
        self._known.move_to_end(beginning, last=False)
        while len(self._known) > _KNOWN:
            self._known.popitem()
        return beginning, connect


def payload_of(found: Any) -> tuple[Any, ConnectSchema | None]:
    """The payload of one parsed record and its schema. Raises ValueError when the schema is not valid."""
    if not isinstance(found, dict) or found.keys() != {"schema", "payload"}:
        return found, None
    connect = None if found["schema"] is None else ConnectSchema.of(found["schema"])
    return found["payload"], connect
