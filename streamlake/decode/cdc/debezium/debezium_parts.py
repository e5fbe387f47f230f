"""The parts of a Debezium format: its parsed options, and the form that records are written in.

Here `debezium.*` options are separated from those of the form (`schema-registry.*` for Avro).
"""

from __future__ import annotations

from collections.abc import Mapping

from streamlake.decode.cdc.avro_payloads import AvroPayloadForm
from streamlake.decode.cdc.debezium.debezium_options import DebeziumOptions
from streamlake.decode.cdc.json_payloads import JsonPayloadForm
from streamlake.decode.cdc.payloads import PayloadForm
from streamlake.decode.registry.registry_options import RegistryOptions, without_registry
from streamlake.decode.registry.schema_registry import schema_registry
from streamlake.decode.values.record_limits import without_limits


def debezium_parts(format: str, options: Mapping[str, str]) -> tuple[DebeziumOptions, PayloadForm]:
    """The parsed options, and the form with nothing read yet. Contacts no server.

    Raises InvalidOptionError for an option that the format does not have, or a missing registry.
    """
    options = without_limits(options)
    if not format.endswith("-avro"):
        return DebeziumOptions.parse(options), JsonPayloadForm()
    own, registry = without_registry(options)
    return DebeziumOptions.parse(own), AvroPayloadForm(schema_registry(RegistryOptions.parse(registry)))
