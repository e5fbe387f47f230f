"""Value formats by name: their decoders, and the schema where a format has its own.

Here the options of all formats meet: each format takes its own (`json.*`, `avro.*`, `schema-registry.*`) and
refuses the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from streamlake.decode.avro.avro_decoder import AvroDecoder, Failure
from streamlake.decode.avro.avro_schema import AvroType, parse_avro_schema
from streamlake.decode.avro.avro_types import schema_from_avro
from streamlake.decode.json.json_decoder import JsonDecoder
from streamlake.decode.json.json_options import NOTICE, JsonOptions
from streamlake.decode.json.json_schema import schema_from_json_schema
from streamlake.decode.registry.confluent_decoder import ConfluentAvroDecoder, ConfluentJsonDecoder
from streamlake.decode.registry.registry_options import PREFIX, RegistryOptions, without_registry
from streamlake.decode.registry.schema_registry import SchemaRegistry, UnknownSchemaError, schema_registry
from streamlake.decode.values.new_fields import Watch
from streamlake.decode.values.record_limits import without_limits
from streamlake.errors import InvalidOptionError, SchemaMismatchError
from streamlake.options import check_option_names
from streamlake.spec.types.schema import Schema

Array = Any  # numpy array

AVRO_SCHEMA = "avro.schema"
"""The option with an Avro schema: the writer's for `avro`, a reader's (optional) for `confluent-avro`."""


class ValueDecoder(Protocol):
    """Decodes the values that are not null; called for every raw batch."""

    def decode(self, values: pa.Array, failure: Failure) -> list[pa.Array]:
        """One array per field of the schema.

        For a record that cannot be decoded, raises what `failure` makes of its index and reason.
        """
        ...

    def absent(self, values: pa.Array, columns: Sequence[pa.Array]) -> dict[str, Array]:
        """For fields that some of n records do not have, (n,) bool; `columns` are the decoded columns."""
        ...


def value_decoder(
    format: str, schema: Schema, options: Mapping[str, str], watch: Watch | None = None
) -> ValueDecoder | None:
    """The decoder of a format to the columns of `schema`; None for "raw". Contacts no server.

    With a `watch`, the decoder raises NewFieldsError or NewSchemaError, see `new_fields`. Raises
    InvalidOptionError for an option that the format does not have, SchemaMismatchError and
    FeatureUnsupportedError for columns that it has no values for.
    """
    if format == "json":
        return JsonDecoder(schema, _json_options(options, watch))
    if format == "confluent-json":
        plain, registry = without_registry(options)
        if registry:
            RegistryOptions.parse(registry)
        return ConfluentJsonDecoder(schema, _json_options(plain, watch))
    if format == "avro":
        return AvroDecoder(schema, _given_avro(options), where=f"the option {AVRO_SCHEMA}")
    if format == "confluent-avro":
        plain, registry = without_registry(options)
        reader = _given_avro(plain) if plain else None
        return ConfluentAvroDecoder(schema, _registry(registry), reader, watch)
    check_option_names(options, (), f"the format '{format}'")
    return None


def _json_options(options: Mapping[str, str], watch: Watch | None) -> JsonOptions:
    parsed = JsonOptions.parse(options)
    if watch is None or parsed.unknown_fields == "fail":
        return parsed
    return replace(parsed, unknown_fields=NOTICE, known=watch.taken)


def declared_schema(
    format: str, topics: Callable[[], Iterable[str]], options: Mapping[str, str]
) -> Schema | None:
    """The schema of a format that has its own: from the option avro.schema, or the registry's latest.

    None for formats whose values have no schema. `topics` is only called when the topics matter. Raises
    InvalidOptionError when the registry has no schema for a topic, SchemaMismatchError when those of several
    topics differ, SourceError when the registry does not answer.
    """
    options = without_limits(options)
    if format == "avro" or (format == "confluent-avro" and AVRO_SCHEMA in options):
        return schema_from_avro(_given_avro(without_registry(options)[0]), f"the option {AVRO_SCHEMA}")
    if format not in ("confluent-avro", "confluent-json"):
        return None
    registry = _registry(without_registry(options)[1])
    found: dict[str, Schema] = {topic: _latest(format, topic, registry) for topic in topics()}
    if not found:
        raise InvalidOptionError("there is no topic yet whose schema could be looked up; pass a schema")
    first, *others = found
    for topic in others:
        if found[topic].fields != found[first].fields:
            raise SchemaMismatchError(
                f"the topics {first} and {topic} have different schemas in the registry; pass a schema that "
                "has the columns of both"
            )
    return found[first]


def _latest(format: str, topic: str, registry: SchemaRegistry) -> Schema:
    subject = registry.subject_of(topic)
    try:
        registered = registry.latest(subject)
    except UnknownSchemaError as error:
        raise InvalidOptionError(
            f"{error}: set {PREFIX}subject to where the schemas of topic {topic} are, or pass a schema"
        ) from error
    if format == "confluent-avro":
        return schema_from_avro(registered.avro, registered.name)
    registered.require("JSON")
    return schema_from_json_schema(registered.text, registered.name, dict(registered.references))


def _given_avro(options: Mapping[str, str]) -> AvroType:
    check_option_names(options, (AVRO_SCHEMA,), "the Avro decoder")
    if AVRO_SCHEMA not in options:
        raise InvalidOptionError(
            f"the format 'avro' needs the option {AVRO_SCHEMA}, the schema that the records were written "
            "with, as JSON"
        )
    return parse_avro_schema(options[AVRO_SCHEMA], f"the option {AVRO_SCHEMA}")


def _registry(options: Mapping[str, str]) -> SchemaRegistry:
    return schema_registry(RegistryOptions.parse(options))
