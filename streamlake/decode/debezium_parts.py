"""What a Debezium format's name and options say: the form that records are written in, and how the connector is set up.

The place where `debezium.*` options meet those of the form (`schema-registry.*` for Avro).
"""

from __future__ import annotations

from collections.abc import Mapping

from streamlake.decode.avro_payloads import AvroPayloadForm
from streamlake.decode.debezium_options import DebeziumOptions
from streamlake.decode.json_payloads import JsonPayloadForm
from streamlake.decode.payloads import PayloadForm
from streamlake.decode.record_limits import without_limits
from streamlake.decode.registry_options import RegistryOptions, without_registry
from streamlake.decode.schema_registry import schema_registry


def debezium_parts(format: str, options: Mapping[str, str]) -> tuple[DebeziumOptions, PayloadForm]:
    """The parsed options, and the form with nothing read yet. Contacts nothing.

    Raises InvalidOptionError for an option that the format does not have, or a registry that is missing.
    """
    options = without_limits(options)
    if not format.endswith("-avro"):
        return DebeziumOptions.parse(options), JsonPayloadForm()
    own, registry = without_registry(options)
    return DebeziumOptions.parse(own), AvroPayloadForm(schema_registry(RegistryOptions.parse(registry)))
