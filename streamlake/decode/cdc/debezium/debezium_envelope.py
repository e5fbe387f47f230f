"""Base of the decoders of Debezium's events and unwrapped events: settings, payloads, row readers.

The base class of both `Envelope`s. Invariant: in either form, a record without payload changes no row, and a
record whose payload is not an object is a reject.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.decode.cdc.change_parts import changes_schema, joined
from streamlake.decode.cdc.debezium.debezium_options import DebeziumOptions
from streamlake.decode.cdc.json_payloads import JsonPayloadForm
from streamlake.decode.cdc.payloads import PayloadForm, Payloads
from streamlake.decode.cdc.row_reader import RowReader
from streamlake.decode.cdc.source_tables import TableCheck
from streamlake.decode.converters.converter import Converter
from streamlake.decode.values.connect_schema import ConnectSchema, iceberg_schema_of
from streamlake.decode.values.envelope import Array, Changes, Outcome, Records
from streamlake.decode.values.new_fields import NewFieldsError, Watch, lacking
from streamlake.decode.values.unavailable import Unavailable
from streamlake.spec.types.schema import Schema


class DebeziumEnvelope(ABC):
    """Reads records of one table to the columns of `schema`.

    `key` names the columns of its key; for `routes` see RowReader. `form` defaults to JSON.
    """

    def __init__(
        self,
        schema: Schema,
        key: Sequence[str] = (),
        options: DebeziumOptions | None = None,
        form: PayloadForm | None = None,
        *,
        routes: Sequence[str] = (),
        partial_update: bool = False,
        watch: Watch | None = None,
        check: TableCheck | None = None,
    ) -> None:
        self._check = check or TableCheck()
        self._schema = schema
        self._key = tuple(key)
        self._routes = tuple(routes)
        self._partial_update = partial_update
        self._watch = watch
        self._options = options or DebeziumOptions()
        self._unavailable = Unavailable(self._options.unavailable_value_placeholder)
        self._arrow = changes_schema(schema)
        self._form: PayloadForm = form or JsonPayloadForm()

    def bulk(self, records: Records) -> Changes:
        """See Envelope.bulk."""
        return joined([self._run(payloads) for payloads in self._form.runs(records)], self._arrow)

    def one(self, value: bytes, key: bytes | None) -> Outcome:
        """See Envelope.one."""
        payload, connect = self._form.payload(value)
        if payload is None:
            return Outcome(ignored="record without payload")
        if not isinstance(payload, dict):
            raise ValueError("its payload is no object")
        return self._outcome(payload, connect, key)

    def tables(self, records: Records) -> pa.StringArray:
        """See Envelope.tables."""
        places: Array = np.zeros(0, dtype=np.int64)
        names = [pa.array([], pa.string())]
        for payloads in self._form.runs(records):
            names.append(self._tables(payloads))
            places = np.concatenate([places, payloads.records.places])
        order = np.argsort(places, kind="stable")
        return pa.concat_arrays(names).take(pa.array(order))

    @abstractmethod
    def _tables(self, payloads: Payloads) -> pa.StringArray:
        """The names of the payloads' tables. Raises as Envelope.tables."""

    @abstractmethod
    def _run(self, payloads: Payloads) -> Changes:
        """The changes of payloads of one schema. Raises as Envelope.bulk."""

    @abstractmethod
    def _outcome(
        self, payload: Mapping[str, Any], connect: ConnectSchema | None, key: bytes | None
    ) -> Outcome:
        """The outcome of one payload. Raises ValueError with the reason."""

    def _unwatched(self, described: ConnectSchema | None) -> Watch | None:
        """The watch over rows; None for rows that a schema describes.

        Raises NewFieldsError where that schema has new fields.
        """
        if described is None or self._watch is None:
            return self._watch
        if lacking(self._schema.fields, iceberg_schema_of(described).fields, self._watch):
            raise NewFieldsError
        return None

    def _row_reader(self, converters: Mapping[str, Converter], watch: Watch | None) -> RowReader:
        return RowReader(
            self._schema,
            converters,
            self._key,
            self._unavailable,
            routes=self._routes,
            partial_update=self._partial_update,
            watch=watch,
        )
