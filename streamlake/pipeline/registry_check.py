"""Does the schema registry answer, does it have the topics' schemas, and does the table have columns for them?"""

from __future__ import annotations

from collections.abc import Iterable

from streamlake.decode.avro_decoder import AvroDecoder
from streamlake.decode.registry_options import PREFIX, RegistryOptions
from streamlake.decode.schema_registry import SchemaRegistry, UnknownSchemaError, schema_registry
from streamlake.decode.value_formats import declared_schema
from streamlake.errors import StreamlakeError
from streamlake.pipeline.check_points import Points
from streamlake.source.kafka_source import ENVELOPES, KafkaSource
from streamlake.spec.schema import Schema

REGISTRY = "registry"
PLAIN_FORMATS = ("confluent-avro", "confluent-json")
FORMATS = (*PLAIN_FORMATS, *(name for name in ENVELOPES if name.endswith("-avro")))
"""Those whose records name their schema in a registry; an envelope's schema has the table's columns inside."""


def check_registry(
    source: KafkaSource, topics: Iterable[str], columns: Schema | None, points: Points
) -> None:
    """`columns` are the table's that come from the records' values; None where there is no table yet."""
    options = {name: value for name, value in source.settings.decode.items() if name.startswith(PREFIX)}
    try:
        parsed = RegistryOptions.parse(options)
        registry = schema_registry(parsed)
    except StreamlakeError as error:
        points.error(REGISTRY, str(error))
        return
    if parsed.credentials_in_the_open:
        points.warning(REGISTRY, parsed.credentials_in_the_open)
    found = []
    for topic in sorted(set(topics)):
        try:
            if source.format in PLAIN_FORMATS:
                declared_schema(source.format, lambda topic=topic: [topic], source.settings.decode)  # type: ignore[misc]
            else:
                registry.latest(registry.subject_of(topic))
            if columns is not None and source.format == "confluent-avro":
                _require_columns(registry, registry.subject_of(topic), columns)
        except (StreamlakeError, UnknownSchemaError) as error:
            points.error(REGISTRY, str(error))
        else:
            found.append(topic)
    if found:
        is_fitted = columns is not None and source.format == "confluent-avro"
        fits = ", and they fit the table" if is_fitted else ""
        points.right(REGISTRY, f"it has the newest schemas of {', '.join(found[:8])}{fits}")


def _require_columns(registry: SchemaRegistry, subject: str, columns: Schema) -> None:
    """Raise SchemaMismatchError where records of the subject's newest schema do not fit the columns."""
    newest = registry.latest(subject)
    AvroDecoder(columns, newest.avro, None, where=newest.name)
