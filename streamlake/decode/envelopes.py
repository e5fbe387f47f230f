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
from streamlake.errors import InvalidOptionError
from streamlake.spec.schema import Schema

_Open = Callable[[Schema, Sequence[str], Mapping[str, str]], Envelope]

_FORMATS: dict[str, _Open] = {
    "debezium-json": lambda schema, key, options: DebeziumJson(schema, key, DebeziumOptions.parse(options)),
    "debezium-unwrapped-json": lambda schema, key, options: DebeziumUnwrapped(
        schema, key, DebeziumOptions.parse(options)
    ),
    "canal-json": CanalJson,
    "maxwell-json": MaxwellJson,
}
FORMATS = tuple(_FORMATS)
"""The names of the envelopes."""


def open_decoder(
    format: str, schema: Schema, key: Sequence[str], options: Mapping[str, str]
) -> EnvelopeDecoder:
    """A decoder of `format` to the columns of `schema`, whose key has the columns `key` (none: no key).

    Raises InvalidOptionError for an unknown format, option or column of the key.
    """
    if format not in _FORMATS:
        raise InvalidOptionError(f"format is '{format}'; envelopes are {', '.join(FORMATS)}")
    missing = [name for name in key if name not in schema.column_names]
    if missing:
        raise InvalidOptionError(f"the key has the column '{missing[0]}', which the schema does not have")
    return EnvelopeDecoder(schema, _FORMATS[format](schema, key, options))
