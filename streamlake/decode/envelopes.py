"""The envelopes by name: what a pipeline's `format` opens.

Called once per task, on the executors. Names are "debezium-json" and the like; each has its options under its own
prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from streamlake.decode.canal_json import CanalJson
from streamlake.decode.debezium_json import DebeziumJson
from streamlake.decode.debezium_options import DebeziumOptions
from streamlake.decode.debezium_unwrapped import DebeziumUnwrapped
from streamlake.decode.envelope import Envelope
from streamlake.decode.envelope_decoder import EnvelopeDecoder
from streamlake.decode.maxwell_json import MaxwellJson
from streamlake.decode.new_fields import Watch
from streamlake.errors import InvalidOptionError
from streamlake.spec.schema import Schema

_Open = Callable[[Schema, Sequence[str], Mapping[str, str], bool, "Watch | None"], Envelope]

_FORMATS: dict[str, _Open] = {
    "debezium-json": lambda schema, key, options, partial, watch: DebeziumJson(
        schema, key, DebeziumOptions.parse(options), partial_update=partial, watch=watch
    ),
    "debezium-unwrapped-json": lambda schema, key, options, partial, watch: DebeziumUnwrapped(
        schema, key, DebeziumOptions.parse(options), partial_update=partial, watch=watch
    ),
    "canal-json": lambda schema, key, options, partial, watch: CanalJson(
        schema, key, options, partial_update=partial, watch=watch
    ),
    "maxwell-json": lambda schema, key, options, partial, watch: MaxwellJson(
        schema, key, options, partial_update=partial, watch=watch
    ),
}
FORMATS = tuple(_FORMATS)
"""The names of the envelopes."""


def open_decoder(
    format: str,
    schema: Schema,
    key: Sequence[str],
    options: Mapping[str, str],
    *,
    partial_update: bool = False,
    watch: Watch | None = None,
) -> EnvelopeDecoder:
    """A decoder of `format` to the columns of `schema`, whose key has the columns `key` (none: no key).

    With `partial_update` a field that a row does not have is unset: its value is that of the row that is replaced. With a `watch` it
    raises NewFieldsError, see new_fields.
    Raises InvalidOptionError for an unknown format, option or column of the key.
    """
    if format not in _FORMATS:
        raise InvalidOptionError(f"format is '{format}'; envelopes are {', '.join(FORMATS)}")
    missing = [name for name in key if name not in schema.column_names]
    if missing:
        raise InvalidOptionError(f"the key has the column '{missing[0]}', which the schema does not have")
    return EnvelopeDecoder(schema, _FORMATS[format](schema, key, options, partial_update, watch))
