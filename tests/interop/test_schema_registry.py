"""A schema registry that others wrote: what it answers becomes rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest

from streamlake.decode.row_decoder import RowDecoder
from streamlake.errors import DecodeError, InvalidOptionError, SourceError
from streamlake.pipeline.kafka.sampled_schema import with_inferred_schema
from streamlake.records import RAW_RECORDS
from streamlake.source.kafka_source import KafkaSource
from tests.helpers import rings
from tests.helpers.apicurio import ApicurioRegistry
from tests.helpers.rings import PartUnavailableError
from tests.helpers.schema_registry import framed

pytestmark = pytest.mark.interop

COLOUR = {"type": "enum", "name": "shop.Colour", "symbols": ["RED", "BLUE"]}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


def fields(*parts):
    return {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [dict(zip(("name", "type", "default"), part, strict=False)) for part in parts],
    }


FIRST = fields(("id", "long"), ("colour", "shop.Colour"))
SECOND = fields(("id", "long"), ("colour", "shop.Colour"), ("price", ["null", PRICE], None))
JSON_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
    "required": ["id"],
}


@pytest.fixture(scope="module")
def registry(tmp_path_factory) -> Iterator[ApicurioRegistry]:
    try:
        with ApicurioRegistry(tmp_path_factory.mktemp("registry")) as running:
            yield running
    except PartUnavailableError as error:
        rings.give_up("interop", error)


def rows(registry, topic, format, *values):
    source = KafkaSource("h:1", topic, format=format, options={"schema-registry.url": registry.url})
    known = with_inferred_schema(source)
    batch = pa.RecordBatch.from_pylist(
        [
            {"value": value, "topic": topic, "partition": 0, "offset": at, "timestamp": 0}
            for at, value in enumerate(values)
        ],
        schema=RAW_RECORDS,
    )
    decoder = RowDecoder(
        known.table_schema, known.metadata_columns, known.format, dict(known.settings.decode)
    )
    return decoder.decode(batch).rows.to_pylist()


def test_avro_of_two_versions_with_a_reference(registry):
    registry.register("colour", COLOUR)
    reference = [{"name": "shop.Colour", "subject": "colour", "version": 1}]
    ids = [registry.register("orders-value", schema, references=reference) for schema in (FIRST, SECOND)]
    assert ids[0] != ids[1]
    values = []
    for number, schema, row in (
        (0, FIRST, {"id": 1, "colour": "BLUE"}),
        (1, SECOND, {"id": 2, "colour": "RED", "price": None}),
    ):
        named: dict = {}
        fastavro.parse_schema(COLOUR, named_schemas=named)
        out = BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named_schemas=named), row)
        values.append(framed(ids[number], out.getvalue()))
    assert rows(registry, "orders", "confluent-avro", *values) == [
        {"id": 1, "colour": "BLUE", "price": None},
        {"id": 2, "colour": "RED", "price": None},
    ]
    with pytest.raises(
        DecodeError, match="orders-0 offset 1: the schema 999999 of the registry is not there"
    ):
        rows(registry, "orders", "confluent-avro", values[0], framed(999_999, b""))


def test_json_with_a_schema(registry):
    number = registry.register("clicks-value", JSON_SCHEMA, "JSON")
    (row,) = rows(
        registry,
        "clicks",
        "confluent-json",
        framed(number, json.dumps({"id": 5, "at": "2024-01-01T00:00:00Z"}).encode()),
    )
    assert (row["id"], row["at"].year) == (5, 2024)


def test_what_is_not_there_is_told(registry):
    with pytest.raises(InvalidOptionError, match="the subject nothing-value of the registry is not there"):
        rows(registry, "nothing", "confluent-avro")
    registry.url, right = registry.url.replace("ccompat", "nonsense"), registry.url
    try:
        with pytest.raises(SourceError, match="the subject orders-value of the registry: "):
            rows(registry, "orders", "confluent-avro")
    finally:
        registry.url = right
