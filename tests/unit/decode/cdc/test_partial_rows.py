"""Partial updates of plain JSON and Avro: a field that a record lacks is missing, and one that is null is null."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlake import create_table, load_table
from streamlake.decode.json.json_names import present_fields
from streamlake.decode.row_decoder import RowDecoder
from streamlake.errors import DecodeError, InvalidOptionError
from streamlake.formats.arrow.missing_fields import missing_field_masks
from streamlake.pipeline.sinks.prepared_source import prepared_source
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.records import MISSING_FIELDS, PLACE
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.types.ddl import parse_ddl
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.schema_registry import RegistryServer, framed
from tests.unit.decode.raw_records import raw_batch

SCHEMA = parse_ddl(
    "id long not null, name string not null, note string, n int, place struct<a: int, note: string>, tags array<string>"
)


def unset_of(rows: pa.RecordBatch) -> list[set[str]]:
    masks = missing_field_masks(rows.column(MISSING_FIELDS)) if MISSING_FIELDS in rows.schema.names else {}
    return [{name for name, mask in masks.items() if mask[at]} for at in range(rows.num_rows)]


def reader(format: str = "json", options: dict[str, str] | None = None, partial: bool = True) -> RowDecoder:
    return RowDecoder(SCHEMA, {}, format, options or {}, partial_update=partial)


def lacking(record: dict[str, Any]) -> set[str]:
    return set(SCHEMA.column_names) - record.keys()


def test_what_is_missing_is_unset_and_what_is_null_is_null() -> None:
    records: list[Any] = [
        {"id": 1, "name": "a", "note": "x", "n": 1, "place": {"a": 1, "note": None}, "tags": []},
        {"id": 2, "name": "b", "note": None, "place": None},
        None,
        {"id": 3, "n": None, "place": {"note": "name"}},
        {"id": 4, "name": "note", "tags": ["n", "note"]},
    ]
    found = reader().decode(raw_batch([{"value": record} for record in records]))
    present = [record for record in records if record is not None]
    assert unset_of(found.rows) == [lacking(record) for record in present]
    assert found.tombstones == 1
    rows = found.rows.drop_columns([MISSING_FIELDS, PLACE]).to_pylist()
    assert [{k: v for k, v in row.items() if v is not None} for row in rows] == [
        {
            k: {"a": v.get("a"), "note": v.get("note")} if k == "place" else v
            for k, v in record.items()
            if v is not None
        }
        for record in present
    ]
    places = found.rows.column(PLACE).to_pylist()
    assert [None if place is None else place["offset"] for place in places] == [None, 101, 103, 104]


def test_whole_records_have_no_such_column() -> None:
    whole = {"id": 1, "name": "a", "note": None, "n": None, "place": None, "tags": None}
    assert reader().decode(raw_batch([{"value": whole}] * 100)).rows.schema.names == SCHEMA.column_names
    part = {"id": 1, "name": "a"}
    rows = reader(partial=False).decode(raw_batch([{"value": part}])).rows
    assert rows.schema.names == SCHEMA.column_names


def test_a_required_field_may_be_missing_and_not_null() -> None:
    good, bad = {"id": 1}, {"id": 2, "name": None}
    batch = raw_batch([{"value": good}] * 70 + [{"value": bad}] + [{"value": good}] * 70)
    with pytest.raises(DecodeError, match="offset 170: 'name' is required, but it is null"):
        reader().decode(batch)
    found = reader().decode(batch, keep_rejects=True)
    assert [(each.record, each.reason) for each in found.rejects] == [
        (70, "'name' is required, but it is null")
    ]
    assert found.rows.num_rows == 140
    assert unset_of(found.rows) == [lacking(good)] * 140
    assert found.rows.column(PLACE).to_pylist()[70]["offset"] == 171


NAMES = st.sampled_from(["id", "note", "n", "nö", 'a"b', "a\\", "\n", "", "note ", "{", "place", "x"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=5), NAMES, st.floats(allow_nan=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def written(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    record = draw(st.dictionaries(NAMES, VALUES, max_size=5))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))
    text = json.dumps(record, ensure_ascii=draw(st.booleans()), separators=separators)
    if draw(st.booleans()):
        text = text.replace('"note"', '"not\\u0065"')
    return record, f"{draw(st.sampled_from(['', ' ']))}{text}{draw(st.sampled_from(['', ' ']))}".encode()


@settings(max_examples=150, deadline=None)
@given(st.lists(written(), max_size=6), st.integers(0, 2))
def test_names_are_those_that_the_json_module_finds(
    records: list[tuple[dict[str, Any], bytes]], skipped: int
) -> None:
    records = records[skipped:]
    values = pa.array([b'{"note":"'] * skipped + [text for _, text in records], pa.binary()).slice(skipped)
    names = ["note", "n", "nö", 'a"b', "a\\", "", "{", "x"]
    found = present_fields(values, names)
    for name, has in zip(names, found, strict=True):
        assert has.tolist() == [name in record for record, _ in records], name


def test_records_of_one_template() -> None:
    records = [{"id": at, "place": {"note": "n"}, "name": None, "n": at} for at in range(100)]
    rows = reader().decode(raw_batch([{"value": {**record, "name": "x"}} for record in records])).rows
    assert unset_of(rows) == [{"note", "tags"}] * 100
    values = pa.array([json.dumps(record).encode() for record in records], pa.binary())
    found = present_fields(values, ["id", "place", "name", "note", "place.note"])
    assert [set(has.tolist()) for has in found] == [{True}, {True}, {True}, {False}, {False}]


WIDE: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "n", "type": "int", "default": 7},
    ],
}
COLUMNS = parse_ddl("id long not null, name string not null, note string, n int")


def of(*names: str) -> dict[str, Any]:
    return {**WIDE, "fields": [part for part in WIDE["fields"] if part["name"] in names]}


def encoded(schema: dict[str, Any], **row: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def test_a_field_that_the_writers_schema_lacks_is_missing() -> None:
    written = of("id", "note")
    options = {"avro.schema": json.dumps(written)}
    decoder = RowDecoder(COLUMNS, {}, "avro", options, partial_update=True)
    found = decoder.decode(
        raw_batch([{"value": encoded(written, id=1, note=None)}, {"value": encoded(written, id=2, note="x")}])
    ).rows
    assert unset_of(found) == [{"name", "n"}] * 2
    assert found.column("note").to_pylist() == [None, "x"]
    assert found.column("id").to_pylist() == [1, 2]


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer().running() as server:
        yield server


def test_each_schema_of_a_batch_tells_what_its_records_lack(registry: RegistryServer) -> None:
    schemas = [of("id", "name", "note", "n"), of("id", "note"), of("id", "name", "n")]
    ids = [registry.register(f"s{at}", json.dumps(each)) for at, each in enumerate(schemas)]
    rows: list[dict[str, Any]] = [
        {"id": 0, "name": "a", "note": None, "n": 1},
        {"id": 1, "note": "x"},
        {"id": 2, "name": "b", "n": 2},
    ]
    order = [1, 0, 2, 2, 1]
    batch = raw_batch([{"value": framed(ids[at], encoded(schemas[at], **rows[at]))} for at in order])
    options = {"schema-registry.url": registry.url, "avro.schema": json.dumps(WIDE)}
    for chosen in (options, {"schema-registry.url": registry.url}):
        found = RowDecoder(COLUMNS, {}, "confluent-avro", chosen, partial_update=True).decode(batch).rows
        assert unset_of(found) == [set(COLUMNS.column_names) - rows[at].keys() for at in order]
        wanted = [{**dict.fromkeys(COLUMNS.column_names), **rows[at]} for at in order]
        assert found.drop_columns([MISSING_FIELDS, PLACE]).to_pylist() == wanted, (
            "a reader's default is no value"
        )


def test_json_behind_a_header() -> None:
    batch = raw_batch(
        [{"value": framed(5, json.dumps(each).encode())} for each in ({"id": 1}, {"id": 2, "n": None})]
    )
    decoder = reader("confluent-json", {"schema-registry.url": "http://127.0.0.1:1"})
    assert unset_of(decoder.decode(batch).rows) == [lacking({"id": 1}), lacking({"id": 2, "n": None})]


def test_where_it_cannot_be_done() -> None:
    partial = {"partial-update": True}
    with pytest.raises(InvalidOptionError, match="records with fields"):
        KafkaSource("b:1", "t", format="raw", options=partial)
    source = KafkaSource("b:1", "t", schema="id long", options=partial)
    for arguments in ({}, {"mode": "upsert", "key": ["id"], "delete_mode": "equality"}):
        with pytest.raises(InvalidOptionError, match="the fields that a record does not have"):
            prepared_source(IcebergSink("/t", **arguments).settings, source)


@pytest.mark.parametrize(("policy", "ends"), [("fail", None), ("null", 3), ("reject", 2)])
def test_a_table_keeps_what_records_leave_out(tmp_path: Path, policy: str, ends: int | None) -> None:
    location = str(tmp_path / "table")
    create_table(
        location, "id long, a string, b string, n int", format_version=3,
        properties={"streamlake.upsert.unset-values": policy},
    )  # fmt: skip
    stream = LocalUpserts(location, key=["id"])
    decoder = RowDecoder(parse_ddl("id long, a string, b string, n int"), {}, "json", {}, partial_update=True)

    def checkpoint(*records: dict[str, Any]) -> None:
        batch = decoder.decode(raw_batch([{"value": record} for record in records])).rows
        stream.checkpoint(pa.Table.from_batches([batch]))

    def rows() -> list[dict[str, Any]]:
        return sorted(load_table(location).scan().to_arrow().to_pylist(), key=lambda row: row["id"])

    checkpoint(
        {"id": 1, "a": "x", "b": "y", "n": 1}, {"id": 2, "a": "p", "b": None, "n": None}, {"id": 1, "n": 2}
    )
    checkpoint({"id": 1, "b": None}, {"id": 2, "b": "q"}, {"id": 2, "n": 5})
    wanted = [{"id": 1, "a": "x", "b": None, "n": 2}, {"id": 2, "a": "p", "b": "q", "n": 5}]
    assert rows() == wanted
    if ends is None:
        with pytest.raises(DecodeError, match=r"offset 100: .*column 'a' has no value"):
            checkpoint({"id": 3, "b": "new"})
        return
    checkpoint({"id": 3, "b": "new"}, {"id": 1, "n": 3})
    wanted[0]["n"] = 3
    assert rows() == [*wanted, {"id": 3, "a": None, "b": "new", "n": None}][:ends]
