"""The form in which rows are compared: keys, rows, orders and kinds as bytes, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake import KafkaSource
from streamlake.catalog.open import open_table
from streamlake.commit.marker import PIPELINE
from streamlake.commit.offset_summary import offsets_summary
from streamlake.errors import InvalidOptionError, SchemaMismatchError, SourceError
from streamlake.formats.arrow.row_bytes import decode_row
from streamlake.operate.verify import compared_rows
from streamlake.operate.verify import topic_extent as extents
from streamlake.operate.verify.compared_rows import UNREADABLE_KEY, RecordRows, RowForm, TableRows, row_form
from streamlake.operate.verify.postgres_table import PostgresColumn
from streamlake.operate.verify.postgres_values import rendering
from streamlake.operate.verify.topic_extent import topic_extent
from streamlake.read.planning import ScanPlanner
from streamlake.records import ROW_KIND
from streamlake.source.cluster import Topics
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.spec.expressions.expressions import TRUE
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.table import Table
from tests.helpers.batch_write import append
from tests.helpers.row_deltas import row_delta
from tests.helpers.tables import make_table
from tests.unit.decode.raw_records import raw_batch


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = make_table(tmp_path / "t", "id long, v string, n int")
    append(table, content(5))
    return table


def content(count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "v": [f"v{at}" for at in range(count)],
            "n": pa.array(range(count), pa.int32()),
        }
    )


def columns(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    return {name: batch.column(name).to_pylist() for name in batch.schema.names}


def decoded(batch: pa.RecordBatch, form: RowForm) -> list[dict[str, Any]]:
    fields = (*form.key_fields, *form.value_fields)
    found = []
    for key, row in zip(batch.column("key").to_pylist(), batch.column("row").to_pylist(), strict=True):
        values = decode_row(key + row, [part.type for part in fields])
        found.append({part.name: value for part, (value, _) in zip(fields, values, strict=True)})
    return found


def read(table: Table, form: RowForm) -> list[pa.RecordBatch]:
    tasks = list(ScanPlanner(table.io, table.specs, TRUE).tasks(table.manifests(table.current_snapshot)))
    reader = pickle.loads(pickle.dumps(TableRows.of(table, form)))
    return list(reader(iter([pa.record_batch([pa.array([pickle.dumps(tasks)])], names=["part"])])))


@pytest.mark.parametrize("key", [(), ("id",), ("n", "id")])
def test_both_sides_of_equal_rows_are_equal(key: tuple[str, ...], table: Table) -> None:
    form = row_form(table, key=key)
    row_delta(table, [1]).commit()
    [of_table] = read(table, form)
    rows = content(5).filter(pa.array([True, False, True, True, True]))
    of_source = form.of_source(rows.select(["n", "v", "id"]))
    assert columns(of_table) == columns(of_source)
    assert decoded(of_table, form) == [
        {name: row[name] for name in [part.name for part in form.fields]} for row in rows.to_pylist()
    ]
    assert (of_table.column("row").to_pylist() == [b""] * 4) is (not key)


def test_a_source_may_lack_columns_and_have_other_types(table: Table) -> None:
    form = row_form(table, key=["id"])
    narrow = pa.table({"id": pa.array([3], pa.int8()), "n": pa.array([4], pa.int64())})
    assert decoded(form.of_source(narrow), form) == [{"id": 3, "v": None, "n": 4}]
    with pytest.raises(SchemaMismatchError, match="column 'n'"):
        form.of_source(pa.table({"id": [3], "n": pa.array([2**40])}))


def test_only_chosen_columns(table: Table) -> None:
    form = row_form(table, key=["id"], columns=["n", "id"])
    assert [part.name for part in form.fields] == ["id", "n"]
    assert decoded(read(table, form)[0], form)[2] == {"id": 2, "n": 2}
    with pytest.raises(InvalidOptionError, match="'w'"):
        row_form(table, key=["id"], columns=["w"])


@pytest.mark.parametrize(
    ("sequence_by", "values"),
    [
        (["n"], {"n": pa.array([-5, -1, 0, 1, 2**31 - 1], pa.int32())}),
        (["v"], {"v": pa.array(["", "\x00", "a", "ab", "é"])}),
        (
            ["v", "n"],
            {"v": pa.array(["a", "a", "ab", "ab", "b"]), "n": pa.array([1, 2, -1, 0, -9], pa.int32())},
        ),
    ],
)
def test_guards_order_as_bytes(sequence_by: list[str], values: Mapping[str, pa.Array], table: Table) -> None:
    form = row_form(table, key=["id"], sequence_by=sequence_by)
    rows = content(5)
    for name, array in values.items():
        rows = rows.set_column(rows.column_names.index(name), name, array)
    sequence_values = form.of_source(rows).column("guard").to_pylist()
    assert sequence_values == sorted(sequence_values)
    assert len(set(sequence_values)) == 5


def test_kinds_of_changes(table: Table) -> None:
    rows = content(4).append_column("op", pa.array(["c", "-U", "u", "d"]))
    at = np.arange(10, 14)
    upsert = row_form(table, key=["id"], row_kind="op")
    found = columns(upsert.of_source(rows, at, partition=3))
    assert (found["at"], found["removes"], found["partition"]) == (
        [10, 12, 13],
        [False, False, True],
        [3] * 3,
    )
    changelog = row_form(table, key=["id"], row_kind="op", keeps_before=True)
    found = columns(changelog.of_source(rows, at))
    assert (found["at"], found["removes"]) == ([10, 11, 12, 13], [False, True, False, True])


class OneTopic:
    """A cluster with the topic `t`: two partitions, records 5 to 100 and 0 to 7."""

    def __init__(self, source: KafkaSource) -> None:
        self.source = source

    def __enter__(self) -> OneTopic:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def topics(self) -> Topics:
        missing = tuple(name for name in self.source.topics if name != "t")
        return Topics((("t", 0), ("t", 1)), {}, missing, {"tt": "t"})

    def earliest(self, partitions: Any) -> dict[Any, int]:
        return {("t", 0): 5, ("t", 1): 0}

    def latest(self, partitions: Any) -> dict[Any, int]:
        return {("t", 0): 100, ("t", 1): 7}


class TestTopicExtent:
    @pytest.fixture(autouse=True)
    def cluster(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(extents, "KafkaCluster", OneTopic)

    def committed(self, table: Table, positions: Mapping[Any, int]) -> None:
        """A snapshot of a stream of the topic, and a foreign one on top of it."""
        operation = AppendFiles(table)
        text = SourceOffsets(positions).to_text()
        operation.set_summary({**offsets_summary((), (text,)), PIPELINE: "orders"})
        operation.commit()
        append(table, content(1))

    def extent(self, table: Table, until: str = "committed", topics: str = "t") -> Any:
        table = open_table(table.location)
        return topic_extent(KafkaSource("b:1", topics), table.metadata, table.current_snapshot, until)

    def test_up_to_what_is_committed(self, table: Table) -> None:
        self.committed(table, {("t", 0): 60})
        found = self.extent(table)
        assert found.ranges == (OffsetRange("t", 0, 5, 60),)
        assert found.name == "topic t of b:1"
        first, later = found.notes
        assert "t-0 begins at offset 5" in first
        assert "47 offsets are newer than what pipeline 'orders' has committed" in later

    def test_the_nearest_topic_is_named(self, table: Table) -> None:
        with pytest.raises(SourceError, match=r"b:1 has no topic tt; correct the name; did you mean 't'\?"):
            self.extent(table, topics="tt")

    def test_up_to_the_latest(self, table: Table) -> None:
        self.committed(table, {("t", 0): 60})
        found = self.extent(table, "latest")
        assert found.ranges == (OffsetRange("t", 0, 5, 100), OffsetRange("t", 1, 0, 7))
        assert len(found.notes) == 1

    def test_nobody_tells_what_is_committed(self, table: Table) -> None:
        self.committed(table, {("another", 0): 60})
        found = self.extent(table)
        assert found.ranges == (OffsetRange("t", 0, 5, 100), OffsetRange("t", 1, 0, 7))
        assert "no snapshot records" in found.notes[-1]

    def test_refusals(self, table: Table) -> None:
        with pytest.raises(SourceError, match="nope"):
            self.extent(table, topics="t,nope")
        with pytest.raises(InvalidOptionError, match="commited"):
            self.extent(table, "commited")


def test_numbers_of_32_bits_in_doubles_are_compared_as_these(tmp_path: Path):
    """The exact number, and its shortest digits, which is what records without a schema bring."""
    schema = make_table(tmp_path / "reals", "id long, r double").schema
    one = rendering(PostgresColumn("r", "float4"), schema.find("r").type)
    other = rendering(PostgresColumn("r", "float8"), schema.find("r").type)
    assert one is not None
    assert other is not None
    assert (one.is_single, other.is_single) == (True, False)
    form = RowForm("t", schema.fields, ("id",), singles=frozenset({"r"}))
    exact, short, off = 0.10000000149011612, 0.1, 0.10000001
    rows = pa.table({"id": [1, 1, 1], "r": [exact, short, off]})
    values = form.of_source(rows).column(1).to_pylist()
    assert values[0] == values[1] != values[2]
    assert form.of_table(rows.to_batches()[0]).column(1)[0].as_py() == values[0]
    values = replace(form, singles=frozenset()).of_source(rows).column(1).to_pylist()
    assert len(set(values)) == 3


def test_which_table_a_topic_is_of_is_not_what_a_range_shows_first(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range of nothing but another table's changes has no rows of this one."""
    source = KafkaSource("h:1", "t", schema="id long, v string, n int", format="debezium-json")
    name = {"connector": "postgresql", "db": "shop", "table": "products", "lsn": 5}
    row = {"id": 1, "v": "a", "n": 1}
    raw = raw_batch([{"value": {"before": None, "after": row, "op": "c", "source": name}}], topic="t")
    monkeypatch.setattr(compared_rows, "fetch_range", lambda *_: iter([raw]))
    piece = pa.RecordBatch.from_pylist(
        [{"topic": "t", "partition": 3, "start": 100, "until": 101}],
    )
    form = row_form(table, key=["id"], row_kind=ROW_KIND)

    def rows(kept: dict[str, str]) -> list[dict[str, Any]]:
        found = RecordRows(form, source, kept)(iter([piece]))
        return [row for batch in found for row in batch.to_pylist()]

    for kept in ({"t": "shop.products"}, {}):
        [found] = rows(kept)
        assert found["key"][:1] != UNREADABLE_KEY
    [found] = rows({"t": "shop.orders"})
    assert found["key"] == UNREADABLE_KEY + b"t-3 offset 100"
    assert b"it is a change of the table 'shop.products'" in found["row"]
