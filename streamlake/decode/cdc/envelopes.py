"""Registry of the envelopes by name, the change formats that a pipeline's `format` can name.

Called once per task, on the executors. Names are "debezium-json" and the like; each has its options under its
own prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from streamlake.decode.cdc.canal_json import CanalJson
from streamlake.decode.cdc.debezium.debezium_events import DebeziumEvents
from streamlake.decode.cdc.debezium.debezium_parts import debezium_parts
from streamlake.decode.cdc.debezium.debezium_unwrapped import DebeziumUnwrapped
from streamlake.decode.cdc.envelope_decoder import EnvelopeDecoder
from streamlake.decode.cdc.maxwell_json import MaxwellJson
from streamlake.decode.cdc.source_tables import SourceTables, TableCheck
from streamlake.decode.values.envelope import Envelope
from streamlake.decode.values.new_fields import Watch
from streamlake.decode.values.record_limits import RecordLimits, without_limits
from streamlake.errors import InvalidOptionError
from streamlake.spec.types.schema import Schema

_Open = Callable[..., Envelope]
"""Takes schema, key and options; and routes, partial_update, watch and check by name."""


def _debezium(format: str, reader: type[DebeziumEvents] | type[DebeziumUnwrapped]) -> _Open:
    return lambda schema, key, options, **more: reader(schema, key, *debezium_parts(format, options), **more)


_FORMATS: dict[str, _Open] = {
    "debezium-json": _debezium("debezium-json", DebeziumEvents),
    "debezium-avro": _debezium("debezium-avro", DebeziumEvents),
    "debezium-unwrapped-json": _debezium("debezium-unwrapped-json", DebeziumUnwrapped),
    "debezium-unwrapped-avro": _debezium("debezium-unwrapped-avro", DebeziumUnwrapped),
    "canal-json": CanalJson,
    "maxwell-json": MaxwellJson,
}
FORMATS = tuple(_FORMATS)
"""The names of the envelopes."""


def open_decoder(
    format: str,
    schema: Schema,
    key: Sequence[str],
    options: Mapping[str, str],
    *,
    routes: Sequence[str] = (),
    partial_update: bool = False,
    watch: Watch | None = None,
    tables: SourceTables | None = None,
) -> EnvelopeDecoder:
    """A decoder of `format` to the columns of `schema`, whose key has the columns `key` (none: no key).

    `routes` are columns that name the table of a row: another value there moves the row, see RowReader. With
    `partial_update`, a field that a row does not have is missing: the row keeps the value of the row that it
    replaces. With a `watch` it raises NewFieldsError, see `new_fields`. `tables` are those whose changes are
    decoded. Raises InvalidOptionError for an unknown format, option or key column.
    """
    if format not in _FORMATS:
        raise InvalidOptionError(f"format is '{format}'; envelopes are {', '.join(FORMATS)}")
    missing = [name for name in key if name not in schema.column_names]
    if missing:
        raise InvalidOptionError(f"the key has the column '{missing[0]}', which the schema does not have")
    limits = RecordLimits.of(options)
    check = TableCheck(tables)
    envelope = _FORMATS[format](
        schema,
        key,
        without_limits(options),
        routes=routes,
        partial_update=partial_update,
        watch=watch,
        check=check,
    )
    return EnvelopeDecoder(schema, envelope, limits, check)
