"""Spark's schema JSON becomes the types that Iceberg's Spark integration gives."""

from __future__ import annotations

import json

import pytest

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.spec.types.spark_schema import schema_from_spark_json


def field(name, type_, nullable=True, **metadata):
    return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}


def converted(*fields):
    return schema_from_spark_json(json.dumps({"type": "struct", "fields": list(fields)}))


@pytest.mark.parametrize(
    ("spark", "iceberg"),
    [
        ("boolean", "boolean"),
        ("byte", "int"),
        ("short", "int"),
        ("integer", "int"),
        ("long", "long"),
        ("float", "float"),
        ("double", "double"),
        ("decimal(10,2)", "decimal(10, 2)"),
        ("date", "date"),
        ("timestamp", "timestamptz"),
        ("timestamp_ntz", "timestamp"),
        ("string", "string"),
        ("varchar(10)", "string"),
        ("string collate UTF8_LCASE", "string"),
        ("binary", "binary"),
    ],
)
def test_primitives(spark, iceberg):
    assert str(converted(field("c", spark)).fields[0].type) == iceberg


def test_nested_types_get_fresh_ids_level_by_level():
    schema = converted(
        field("id", "long", nullable=False, comment="the key"),
        field(
            "list",
            {
                "type": "array",
                "containsNull": False,
                "elementType": {"type": "struct", "fields": [field("x", "integer")]},
            },
        ),
        field("map", {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}),
    )
    assert [part.field_id for part in schema.fields] == [1, 2, 3]
    assert schema.fields[0].required
    assert schema.fields[0].doc == "the key"
    assert schema.find("list.element").required
    assert schema.find("list.element.x").field_id == 5
    assert not schema.find("map.value").required


@pytest.mark.parametrize("spark", ["interval day to second", "void", "nonsense"])
def test_types_that_iceberg_lacks(spark):
    with pytest.raises(FeatureUnsupportedError, match="column 'c'"):
        converted(field("c", spark))


@pytest.mark.parametrize(
    "text", ["", "[]", '{"type": "array"}', '{"type": "struct"}', '{"type":"struct","fields":[{}]}']
)
def test_other_json_is_refused(text):
    with pytest.raises(InvalidOptionError, match="schema"):
        schema_from_spark_json(text)
