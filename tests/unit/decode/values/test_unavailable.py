"""Values that PostgreSQL left out, in every form in which Debezium 3.7 sends its placeholder, and the types for which it sends none."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from streamlake.decode.cdc.change_inference import infer_changed_rows
from streamlake.decode.cdc.debezium.nulled_values import nulled_columns
from streamlake.decode.cdc.envelopes import open_decoder
from streamlake.spec.types.ddl import parse_ddl
from tests.unit.decode.raw_records import as_bytes, raw_batch

MARK = "__debezium_unavailable_value"
UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""What PostgreSQL's connector sends for `uuid[]`: UUID.nameUUIDFromBytes of the placeholder."""
OTHER = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
BASE64 = base64.b64encode(MARK.encode()).decode()
HSTORE = f'{{"{MARK}":"{MARK}"}}'
LETTERS = list(MARK.encode())
TEXT = {"type": "string", "optional": True}
LOGICAL = {**TEXT, "name": "io.debezium.data.Json"}
UUIDS = {**TEXT, "name": "io.debezium.data.Uuid"}
BYTES = {"type": "bytes", "optional": True}
DAYS = {"type": "int32", "optional": True, "name": "io.debezium.time.Date"}


def many(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "optional": True}


FORMS: list[tuple[str, Any, Any, dict[str, Any]]] = [
    # the table's type, the placeholder, a value that is none, and Connect's schema
    ("string", MARK, MARK + "s", TEXT),
    ("binary", BASE64, "AAAA", BYTES),
    ("array<string>", [MARK], [MARK, MARK], many(TEXT)),
    ("array<string>", [UUID], [OTHER], many(UUIDS)),
    ("array<uuid>", [UUID], [OTHER], many(UUIDS)),
    ("array<uuid>", [UUID], [UUID, UUID], many(UUIDS)),
    ("array<binary>", [BASE64], ["AAAA"], many(BYTES)),
    ("array<binary>", [BASE64], [BASE64, None], many(BYTES)),
    ("array<string>", [MARK], [BASE64], many(TEXT)),
    ("array<int>", LETTERS, LETTERS[:-1], many({"type": "int32", "optional": True})),
    ("array<long>", LETTERS, [None, *LETTERS[1:]], many({"type": "int64", "optional": True})),
    ("array<date>", LETTERS, [1], many(DAYS)),
    (
        "map<string,string>",
        {MARK: MARK},
        {"a": "b"},
        {"type": "map", "keys": TEXT, "values": TEXT, "optional": True},
    ),
    ("string", HSTORE, '{"a":"b"}', LOGICAL),
    ("string", MARK, BASE64, LOGICAL),
]


def event(number: int, value: Any, connect: dict[str, Any] | None, op: str = "u", before: Any = None) -> Any:
    row = {"id": number, "v": value}
    payload = {"before": before, "after": row, "source": {"connector": "postgresql", "lsn": 9}, "op": op}
    if connect is None:
        return payload
    image = {
        "type": "struct",
        "optional": True,
        "fields": [{"type": "int64", "field": "id"}, {**connect, "field": "v"}],
    }
    source = {
        "type": "struct",
        "fields": [{"type": "string", "field": "connector"}, {"type": "int64", "field": "lsn"}],
    }
    parts = {"before": image, "after": image, "source": source, "op": {"type": "string"}}
    fields = [{**part, "field": name} for name, part in parts.items()]
    return {"schema": {"type": "struct", "fields": fields}, "payload": payload}


@pytest.mark.parametrize(("type_", "mark", "value", "connect"), FORMS)
@pytest.mark.parametrize("with_schema", [False, True])
@pytest.mark.parametrize("count", [1, 40])
def test_every_form_of_the_placeholder_is_missing(
    type_: str, mark: Any, value: Any, connect: dict[str, Any], with_schema: bool, count: int
) -> None:
    told = connect if with_schema else None
    decoder = open_decoder("debezium-json", parse_ddl(f"id long not null, v {type_}"), ["id"], {})
    shown = [mark, value, None] * count
    changes = decoder.decode(raw_batch([{"value": event(at, each, told)} for at, each in enumerate(shown)]))
    assert changes.missing["v"].tolist() == [True, False, False] * count
    found = changes.rows.column("v")
    assert found.is_valid().to_pylist() == [False, True, False] * count
    alone = decoder.decode(raw_batch([{"value": event(0, value, told)}])).rows.column("v")
    assert found[1].as_py() == alone[0].as_py()


def test_another_placeholder_has_a_uuid_of_its_own() -> None:
    options = {"debezium.unavailable-value-placeholder": "~"}
    decoder = open_decoder("debezium-json", parse_ddl("id long not null, v array<uuid>"), ["id"], options)
    # nameUUIDFromBytes("~")
    shown = [["4c761f17-0e01-3836-bf84-498202b99827"], [UUID]]
    changes = decoder.decode(raw_batch([{"value": event(at, each, None)} for at, each in enumerate(shown)]))
    assert changes.missing["v"].tolist() == [True, False]


@pytest.mark.parametrize("mark", [MARK, HSTORE, [MARK], [UUID], LETTERS, {MARK: MARK}])
def test_a_placeholder_shows_no_type(mark: Any) -> None:
    records = [(b'{"id": 1}', as_bytes(event(1, each, None))) for each in (mark, 1.5, mark)]
    assert str(infer_changed_rows("debezium-json", records, {}).schema.find("v").type) == "double"


NULLED = {
    "numeric": {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
    "varbit": {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "2147483647"}},
    "polygon": {"type": "struct", "name": "io.debezium.data.geometry.Geometry"},
    "smallint[]": many({"type": "int16"}),
    "real[]": many({"type": "float"}),
    "numeric[]": many({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}),
    "timestamp[]": many({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}),
    "boolean[]": many({"type": "boolean"}),
    "mood[]": many({"type": "string", "name": "io.debezium.data.Enum"}),
}
NOT_NULLED = {
    "numeric(12,2)": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"},
    "bit(8)": {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "8"}},
    "point": {"type": "struct", "name": "io.debezium.data.geometry.Point"},
    "text": TEXT,
    **{name: connect for name, _, _, connect in FORMS},
}


@pytest.mark.parametrize(("name", "connect"), NULLED.items())
def test_columns_whose_values_come_as_null(name: str, connect: dict[str, Any]) -> None:
    table = parse_ddl("id long not null, v string")

    def found(*events: Any) -> tuple[str, ...]:
        return nulled_columns("debezium-json", [json.dumps(each).encode() for each in events], {}, table)

    assert found(event(1, None, connect)) == ("v",)
    assert found(event(1, None, connect, op="c")) == ()
    assert found(event(1, None, connect, before={"id": 1, "v": None})) == ()
    assert found({"op": "m"}, event(1, None, connect)) == ("v",)


@pytest.mark.parametrize("connect", NOT_NULLED.values(), ids=NOT_NULLED)
def test_columns_whose_values_do_not(connect: dict[str, Any]) -> None:
    table = parse_ddl("id long not null, v string")
    assert nulled_columns("debezium-json", [as_bytes(event(1, None, connect))], {}, table) == ()


@pytest.mark.parametrize(
    ("type_", "nulled"),
    [("array<double>", True), ("array<timestamptz>", True), ("array<string>", False), ("string", False)],
)
def test_without_a_schema_the_tables_types_tell(type_: str, nulled: bool) -> None:
    table = parse_ddl(f"id long not null, v {type_}")
    values = [as_bytes(event(1, None, None))]
    assert nulled_columns("debezium-json", values, {}, table) == (("v",) if nulled else ())
    assert nulled_columns("debezium-unwrapped-json", values, {}, table) == ()


@pytest.mark.parametrize("type_", ["binary", "fixed[4]"])
@pytest.mark.parametrize(
    ("mode", "schema", "nulled"),
    [
        ("base64", TEXT, True),
        ("base64", None, True),
        ("bytes", TEXT, True),
        ("bytes", BYTES, False),
        ("bytes", None, False),
        ("hex", TEXT, False),
        ("hex", None, False),
    ],
)
def test_bytes_that_come_as_base64_text_have_no_placeholder(
    type_: str, mode: str, schema: dict[str, Any] | None, nulled: bool
) -> None:
    table = parse_ddl(f"id long not null, v {type_}")
    options = {"debezium.binary-handling-mode": mode}
    found = nulled_columns("debezium-json", [as_bytes(event(1, None, schema))], options, table)
    assert found == (("v",) if nulled else ())
