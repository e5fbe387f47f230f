"""Scans of real tables: what is pruned, what is read, and that nothing is lost."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlake.errors import InvalidOptionError, MissingFileError
from streamlake.read.scan import epoch_ms
from streamlake.spec.expressions.expressions import equal, evaluate, greater_than
from streamlake.spec.partitioning.partition_spec import PartitionSpec, parse_partition_by
from streamlake.spec.types.data_types import IntegerType, LongType, NestedField, StringType
from streamlake.spec.types.schema import Schema
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.tables import create_table, load_table
from tests.helpers import foreign_writers
from tests.unit.read.written_tables import append, rows_of

DAY = datetime(2024, 1, 1)


def rows(numbers):
    return [
        {
            "id": n,
            "category": None if n % 7 == 0 else "abc"[n % 3],
            "ts": DAY + timedelta(hours=n),
            "amount": math.nan if n % 11 == 0 else n / 2,
            "s": {"a": n, "b": str(n)} if n % 5 else None,
        }
        for n in numbers
    ]


COLUMNS = "id long, category string, ts timestamp_ntz, amount double, s struct<a:int,b:string>"


@pytest.fixture
def table(tmp_path):
    """60 rows in three snapshots, partitioned by day and bucket."""
    table = create_table(tmp_path / "t", COLUMNS, partition_by=["day(ts)", "bucket(2, id)"])
    for start in (0, 20, 40):
        append(table, rows(range(start, start + 20)))
    return table


def ids(scan):
    return sorted(scan.to_arrow()["id"].to_pylist())


def test_everything(table):
    found = table.scan().to_arrow()
    assert found.schema.names == ["id", "category", "ts", "amount", "s"]
    expected = rows_of(table, rows(range(60)))
    order = found.sort_by("id").combine_chunks()
    assert order.drop(["amount"]).equals(expected.drop(["amount"]))
    assert order["amount"].fill_null(-1).to_pylist()[1] == 0.5
    assert table.scan().count() == 60


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("id = 17", lambda row: row["id"] == 17),
        ("id in (1, 17, 1000)", lambda row: row["id"] in (1, 17)),
        ("category = 'a'", lambda row: row["category"] == "a"),
        ("category != 'a'", lambda row: row["category"] not in ("a", None)),
        ("not (category = 'a')", lambda row: row["category"] not in ("a", None)),
        ("category is null", lambda row: row["category"] is None),
        ("category not in ('a', 'b') and id < 30", lambda row: row["category"] == "c" and row["id"] < 30),
        ("ts >= '2024-01-02T03:00:00'", lambda row: row["id"] >= 27),
        ("ts between '2024-01-01' and '2024-01-01T05:00:00'", lambda row: row["id"] <= 5),
        ("ts < date '2024-01-02' or id > 55", lambda row: row["id"] < 24 or row["id"] > 55),
        ("amount > 20", lambda row: row["amount"] > 20 or math.isnan(row["amount"])),
        ("amount is nan", lambda row: math.isnan(row["amount"])),
        ("s.a > 10 and s.b like '1%'", lambda row: bool(row["s"]) and 10 < row["id"] < 20),
        ("s.a is null", lambda row: row["s"] is None),
        ("s is not null and id < 7", lambda row: row["s"] is not None and row["id"] < 7),
        ("id = 1.5", lambda row: False),
        ("true", lambda row: True),
    ],
)
def test_filters(table, text, test):
    expected = [row["id"] for row in rows(range(60)) if test(row)]
    scan = table.scan(text)
    assert ids(scan) == expected
    assert scan.count() == len(expected)
    assert ids(table.scan(text, columns=["id"])) == expected


def test_an_expression_is_a_filter_too(table):
    assert ids(table.scan(greater_than("id", 57) | equal("id", 3))) == [3, 58, 59]


def test_partitions_and_metrics_prune_files(table):
    everything = list(table.scan().plan_files())
    assert len(everything) == len({task.data_file.file_path for task in everything})
    one_day = list(table.scan("ts < '2024-01-02'").plan_files())
    assert 0 < len(one_day) < len(everything)
    assert {task.data_file.partition[0] for task in one_day} == {(DAY - datetime(1970, 1, 1)).days}
    # The partition decides the whole filter: nothing is left for the rows.
    assert all(task.known_count == task.data_file.record_count for task in one_day)
    assert len({task.data_file.partition[1] for task in table.scan("id = 17").plan_files()}) == 1
    assert list(table.scan("s.a > 100").plan_files()) == []
    assert list(table.scan("ts > '2030-01-01'").plan_files()) == []


def test_manifests_are_pruned_before_they_are_read(table, monkeypatch):
    import streamlake.read.planning as planning

    read = []
    original = planning.read_manifest
    monkeypatch.setattr(
        planning,
        "read_manifest",
        lambda io, manifest, *rest, **kw: read.append(1) or original(io, manifest, *rest, **kw),
    )
    assert ids(table.scan("ts > '2024-01-03T10:00:00'")) == [59]
    assert len(read) == 1
    read.clear()
    assert table.scan().count() == 60
    assert read == []


def test_row_groups_are_pruned(tmp_path, monkeypatch):
    table = create_table(tmp_path / "t", "id long, d double")
    wide = pa.table(
        {"id": pa.array(range(20_000)), "d": [math.nan if n == 19_999 else 1.0 for n in range(20_000)]}
    )
    append(
        table,
        wide,
        **{"write.parquet.row-group-limit": "1000", "write.parquet.row-group-size-bytes": "16384"},
    )
    groups = sum(len(task.data_file.split_offsets or ()) for task in table.scan().plan_files())
    assert groups > 1
    assert ids(table.scan("id > 5 and id < 8 or id = 19998")) == [6, 7, 19_998]
    assert ids(table.scan("d > 5")) == [19_999]
    assert ids(table.scan("d != 1")) == [19_999]
    found = table.scan("id = 19998", columns=["id", "_pos"]).to_arrow().to_pylist()
    assert found == [{"id": 19_998, "_pos": 19_998}]


def test_columns_in_the_order_asked_for(table):
    found = table.scan("id = 3", columns=["s.b", "id", "_pos", "_file", "_spec_id"]).to_arrow()
    assert found.schema.names == ["s", "id", "_pos", "_file", "_spec_id"]
    row = found.to_pylist()[0]
    assert row["s"] == {"b": "3"}
    assert row["_file"].startswith(table.location)
    assert row["_spec_id"] == 0
    assert table.scan(columns=["*", "_file"]).arrow_schema.names[-2:] == ["s", "_file"]
    assert table.scan(columns=["s.b", "s.a"]).to_arrow().schema.field("s").type.num_fields == 2


def test_filter_columns_are_not_returned(table):
    found = table.scan("s.a = 3 and category is not null", columns=["s.b"]).to_arrow()
    assert found.schema.names == ["s"]
    assert found.to_pylist() == [{"s": {"b": "3"}}] or found.num_rows == 0
    nulls = table.scan("s.a is null and id = 5", columns=["s.b"]).to_arrow()
    assert nulls.to_pylist() == [{"s": None}]


def test_field_ids_travel_with_the_schema(table):
    scan = table.scan(columns=["id"])
    assert scan.arrow_schema.field("id").metadata[b"PARQUET:field_id"] == b"1"
    assert scan.to_arrow().schema == scan.arrow_schema


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"columns": ["idd"]}, "there is no column 'idd'; did you mean 'id'"),
        ({"columns": "id"}, "columns is a list of names"),
        ({"columns": []}, "columns is empty"),
        ({"columns": [1]}, "columns holds names"),
        ({"filter": "idd = 1"}, "did you mean 'id'"),
        ({"filter": 5}, "a filter is a string"),
        ({"snapshot_id": 1}, "snapshot 1"),
        ({"ref": "nope"}, "nope"),
        ({"as_of": 0}, "as of 0"),
        ({"as_of": "yesterday"}, "is not a time"),
        ({"as_of": 0, "ref": "main"}, "not by several"),
        ({"columns": ["_row_id"]}, "need format version 3"),
    ],
)
def test_mistakes_are_named(table, arguments, problem):
    with pytest.raises(InvalidOptionError) as caught:
        table.scan(**arguments)
    assert problem in str(caught.value)


def test_batches_stream_and_are_bounded(tmp_path):
    table = create_table(tmp_path / "t", "id long")
    for start in range(0, 5_000, 1_000):
        append(table, pa.table({"id": range(start, start + 1_000)}))
    batches = list(table.scan().to_batches(batch_size=300))
    assert max(batch.num_rows for batch in batches) <= 300
    assert sum(batch.num_rows for batch in batches) == 5_000
    some = table.scan().to_batches(batch_size=10)
    assert next(some).num_rows == 10
    some.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "streamlake-read-ahead"]
    assert table.scan().to_reader().read_all().num_rows == 5_000
    with pytest.raises(InvalidOptionError, match="batch_size"):
        table.scan().to_batches(0)


def test_an_empty_table(tmp_path):
    table = create_table(tmp_path / "t", COLUMNS)
    assert table.current_snapshot is None
    assert table.scan().to_arrow().num_rows == 0
    assert table.scan("id = 1", columns=["id"]).to_arrow().schema.names == ["id"]
    assert table.scan().count() == 0
    assert table.scan(ref="main").count() == 0
    assert table.scan_incremental().to_arrow().num_rows == 0


def test_a_missing_file_is_an_error(table):
    import os

    victim = next(table.scan().plan_files()).data_file.file_path
    os.remove(victim)
    with pytest.raises(MissingFileError, match="parquet"):
        table.scan().to_arrow()


def test_a_scan_keeps_its_snapshot(table):
    scan = table.scan()
    append(table, rows(range(60, 70)))
    assert scan.to_arrow().num_rows == 60
    assert table.scan().to_arrow().num_rows == 70


def test_a_loaded_table_moves_by_refresh_only(table):
    other = load_table(table.location)
    append(table, rows(range(60, 70)))
    assert other.scan().count() == 60
    assert other.refresh().scan().count() == 70


class TestTimeTravel:
    def test_by_snapshot_and_ref(self, table):
        first, second, third = (snapshot.snapshot_id for snapshot in table.snapshots)
        assert [table.scan(snapshot_id=each).count() for each in (first, second, third)] == [20, 40, 60]
        ManageRefs(table.table).create_tag("v1", first).create_branch("dev", second).commit()
        table.refresh()
        assert table.scan(ref="v1").count() == 20
        assert ids(table.scan("id > 37", ref="dev")) == [38, 39]
        assert table.scan(ref="main").count() == 60

    def test_by_time(self, table):
        times = [entry.timestamp_ms for entry in table.history]
        assert table.scan(as_of=times[0]).count() >= 20
        assert table.scan(as_of=times[-1] + 10).count() == 60
        later = datetime.fromtimestamp(times[-1] / 1000 + 1, timezone.utc)
        assert table.scan(as_of=later).count() == 60
        assert table.scan(as_of=later.isoformat()).count() == 60
        with pytest.raises(InvalidOptionError, match="no snapshot as of"):
            table.scan(as_of=times[0] - 1)

    @pytest.mark.parametrize(
        "moment",
        [
            1704067200000,
            "1704067200000",
            "2024-01-01",
            "2024-01-01T00:00:00",
            "2024-01-01 00:00:00Z",
            "2024-01-01T02:00:00+02:00",
            date(2024, 1, 1),
            datetime(2024, 1, 1),
            datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        ],
    )
    def test_moments(self, moment):
        assert epoch_ms(moment) == 1704067200000


def evolve(table, schema, **changes):
    """Make `schema` the table's current one."""
    base = table.metadata
    schema = replace(schema, schema_id=base.current_schema_id + 1)
    new = replace(
        base,
        schemas=(*base.schemas, schema),
        current_schema_id=schema.schema_id,
        last_column_id=max(base.last_column_id, schema.highest_field_id),
        **changes,
    )
    table.table.operations.commit(base, new)
    return table.refresh()


class TestEvolution:
    def test_columns_by_id(self, tmp_path):
        table = create_table(tmp_path / "t", "id int, name string, old string")
        first = append(table, [{"id": 1, "name": "a", "old": "x"}, {"id": 2, "name": "b", "old": "y"}])
        evolve(
            table,
            Schema(
                (
                    NestedField(2, "title", StringType()),
                    NestedField(1, "id", LongType()),
                    NestedField(4, "name", IntegerType()),
                )
            ),
        )
        append(table, [{"title": "c", "id": 2**40, "name": 7}])
        found = table.scan().to_arrow().sort_by("id").to_pylist()
        assert found == [
            {"title": "a", "id": 1, "name": None},
            {"title": "b", "id": 2, "name": None},
            {"title": "c", "id": 2**40, "name": 7},
        ]
        assert ids(table.scan("title = 'b'")) == [2]
        assert ids(table.scan("id >= 2")) == [2, 2**40]
        assert ids(table.scan("name is null")) == [1, 2]
        assert ids(table.scan("name = 7", columns=["id"])) == [2**40]
        # Time travel by id has the snapshot's schema, a branch the table's.
        assert table.scan(snapshot_id=first.snapshot_id).arrow_schema.names == ["id", "name", "old"]
        assert ids(table.scan("name = 'a'", snapshot_id=first.snapshot_id)) == [1]
        ManageRefs(table.table).create_branch("dev", first.snapshot_id).create_tag(
            "v1", first.snapshot_id
        ).commit()
        table.refresh()
        assert table.scan(ref="dev").arrow_schema.names == ["title", "id", "name"]
        assert table.scan(ref="v1").arrow_schema.names == ["id", "name", "old"]

    def test_initial_defaults_are_filtered_as_values(self, tmp_path):
        table = create_table(tmp_path / "t", "id int", format_version=3)
        append(table, [{"id": 1}])
        evolve(
            table,
            Schema(
                (NestedField(1, "id", IntegerType()), NestedField(2, "n", IntegerType(), initial_default=5))
            ),
        )
        append(table, [{"id": 2, "n": 6}, {"id": 3, "n": None}])
        assert ids(table.scan("n = 5")) == [1]
        assert ids(table.scan("n is null")) == [3]
        assert ids(table.scan("n > 4")) == [1, 2]

    def test_partition_evolution(self, tmp_path):
        table = create_table(tmp_path / "t", "id long, category string", partition_by=["category"])
        append(table, [{"id": n, "category": "ab"[n % 2]} for n in range(10)])
        second = PartitionSpec(1, parse_partition_by(["bucket(4, id)"], table.schema).fields)
        second = replace(second, fields=(replace(second.fields[0], field_id=1001),))
        evolve(
            table,
            table.schema,
            specs=(*table.metadata.specs, second),
            default_spec_id=1,
            last_partition_id=1001,
        )
        append(table, [{"id": n, "category": "ab"[n % 2]} for n in range(10, 20)])
        assert ids(table.scan("category = 'a' and id in (2, 12, 3, 13)")) == [2, 12]
        planned = list(table.scan("id = 12").plan_files())
        assert {task.spec.spec_id for task in planned} == {1}
        assert ids(table.scan("category = 'b'")) == [n for n in range(20) if n % 2]
        assert table.scan(columns=["_spec_id"]).to_arrow()["_spec_id"].to_pylist().count(1) == 10


def test_row_lineage(tmp_path):
    table = create_table(tmp_path / "t", "id long", format_version=3)
    append(table, [{"id": 10}, {"id": 11}])
    append(table, [{"id": 12}])
    found = table.scan(columns=["id", "_row_id", "_last_updated_sequence_number"]).to_arrow().sort_by("id")
    assert found["_row_id"].to_pylist() == [0, 1, 2]
    assert found["_last_updated_sequence_number"].to_pylist() == [1, 1, 2]
    only = table.scan("id = 11", columns=["_row_id"]).to_arrow()
    assert only.to_pylist() == [{"_row_id": 1}]


def test_rows_without_an_id_have_no_lineage(tmp_path):
    """Those of a table that was upgraded, until the next commit gives them their ids."""
    table = create_table(tmp_path / "t", "id long", format_version=2)
    append(table, [{"id": 10}, {"id": 11}])
    foreign_writers.upgrade(str(tmp_path / "t"))
    columns = ["_row_id", "_last_updated_sequence_number"]
    upgraded = load_table(str(tmp_path / "t"))
    assert upgraded.scan(columns=columns).to_arrow().to_pylist() == [dict.fromkeys(columns)] * 2
    append(upgraded, [{"id": 12}])
    found = load_table(str(tmp_path / "t")).scan(columns=["id", *columns]).to_arrow().sort_by("id")
    assert sorted(found["_row_id"].to_pylist()) == [0, 1, 2]
    assert found["_last_updated_sequence_number"].to_pylist() == [1, 1, 2]


PROPERTY_COLUMNS = "i int, d double, s string, t timestamp_ntz, day date"
values = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-3, 3),
        "d": st.none() | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5]),
        "s": st.none()
        | st.sampled_from(
            ["", "a", "ab", "abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz2", "ü🚀"]
        ),
        "t": st.none()
        | st.sampled_from(
            [datetime(1969, 12, 31, 23, 59, 59), datetime(1970, 1, 1), datetime(2024, 1, 1, 5)]
        ),
        "day": st.none() | st.sampled_from([date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)]),
    }
)
conditions = st.sampled_from(
    [
        "i = 1",
        "i != 1",
        "i > 0",
        "i is null",
        "i not in (1, 2)",
        "d > 1",
        "d = 0",
        "d <= 0",
        "d is nan",
        "d is not nan",
        "d != 1.5",
        "s = 'abcdefghijklmnopqrstuvwxyz'",
        "s starts_with 'ab'",
        "s not like 'ab%'",
        "s < 'abcdefghijklmnopqrstuvwxyz1'",
        "s >= 'abcdefghijklmnopqrstuvwxyz1'",
        "t < '1970-01-01'",
        "t >= '1969-12-31T23:59:59'",
        "day = '1969-12-31'",
        "day > '1970-01-01'",
    ]
)
specs = st.lists(
    st.sampled_from(
        ["bucket(3, i)", "truncate(2, i)", "d", "truncate(2, s)", "hour(t)", "month(day)", "year(t)"]
    ),
    max_size=2,
    unique=True,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.lists(values, min_size=1, max_size=5), min_size=1, max_size=3),
    conditions,
    conditions,
    specs,
    st.sampled_from(["and", "or", "and not", "or not"]),
)
def test_scans_agree_with_brute_force(tmp_path_factory, batches, left, right, partition_by, joined):
    from streamlake.spec.expressions.binding import bind
    from streamlake.spec.expressions.value_range import value_matches

    table = create_table(tmp_path_factory.mktemp("p") / "t", PROPERTY_COLUMNS, partition_by=partition_by)
    for batch in batches:
        append(table, batch)
    text = f"{left} {joined} {right}"
    bound = bind(text, table.schema)

    def domain(value):
        if isinstance(value, datetime):
            return (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)
        return (value - date(1970, 1, 1)).days if isinstance(value, date) else value

    def kept(row):
        return evaluate(bound, lambda leaf: value_matches(leaf, domain(row[leaf.ref.name])))

    everything = [row for batch in batches for row in batch]
    expected = sorted(repr(sorted(row.items())) for row in everything if kept(row))
    found = table.scan(text).to_arrow().to_pylist()
    assert sorted(repr(sorted(row.items())) for row in found) == expected
    assert table.scan(text).count() == len(expected)
