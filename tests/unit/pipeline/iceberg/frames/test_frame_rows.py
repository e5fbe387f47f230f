"""Rows of every type and after every kind of delete, as a DataFrame gets them."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streamlake.errors import FeatureUnsupportedError
from streamlake.pipeline.iceberg.frames.uuid_text import with_uuid_text
from streamlake.spec.types.data_types import ListType, MapType, NestedField, StructType, UUIDType
from streamlake.tables import create_table
from tests.helpers.delete_history import NUMBER, VALUES, History
from tests.unit.pipeline.iceberg.frames.spark_stand_in import Batch
from tests.unit.read.written_tables import append

SOME = [UUID(int=0), UUID(int=2**127 + 5), None, UUID("0f8b1f4c-32c5-4c5b-9a0f-6a1f8d2b3c4d")]


def raw(values):
    return pa.array([None if each is None else each.bytes for each in values], pa.binary(16))


def text(values):
    return [None if each is None else str(each) for each in values]


def test_uuids_as_text():
    assert with_uuid_text(raw(SOME), UUIDType()).to_pylist() == text(SOME)
    assert with_uuid_text(raw(SOME).slice(1, 2), UUIDType()).to_pylist() == text(SOME[1:3])
    assert with_uuid_text(raw([None]), UUIDType()).to_pylist() == [None]
    assert with_uuid_text(raw([]), UUIDType()).type == pa.string()


def test_uuids_in_other_types():
    lists = pa.array([[SOME[0].bytes, None], None, [], [SOME[3].bytes]], pa.list_(pa.binary(16)))
    type_ = ListType(1, UUIDType())
    expected = [text([SOME[0], None]), None, [], text([SOME[3]])]
    assert with_uuid_text(lists, type_).to_pylist() == expected
    assert with_uuid_text(lists.slice(2), type_).to_pylist() == expected[2:]
    maps = pa.array([[(SOME[0].bytes, SOME[1].bytes)], None], pa.map_(pa.binary(16), pa.binary(16)))
    found = with_uuid_text(maps, MapType(1, UUIDType(), 2, UUIDType()))
    assert found.to_pylist() == [[(str(SOME[0]), str(SOME[1]))], None]
    structs = pa.array(
        [{"u": SOME[0].bytes, "l": [SOME[1].bytes]}, None, {"u": None, "l": None}],
        pa.struct({"u": pa.binary(16), "l": pa.list_(pa.binary(16))}),
    )
    type_ = StructType((NestedField(1, "u", UUIDType()), NestedField(2, "l", ListType(3, UUIDType()))))
    expected = [{"u": str(SOME[0]), "l": [str(SOME[1])]}, None, {"u": None, "l": None}]
    assert with_uuid_text(structs, type_).to_pylist() == expected
    assert with_uuid_text(structs.slice(1), type_).to_pylist() == expected[1:]


def test_types_of_a_frame(tmp_path):
    table = create_table(
        tmp_path / "t",
        "id long not null, u uuid, f fixed(2), b binary, s struct<u: uuid, m: map<string, fixed(1)>>, "
        "z timestamp, n timestamp_ntz, d decimal(30, 2)",
    )
    append(table, [{"id": 1, "u": SOME[0].bytes, "f": b"ab", "s": {"u": SOME[1].bytes, "m": [("k", b"x")]}}])
    batch = Batch(table)
    assert batch.schema.simpleString() == (
        "struct<id:bigint,u:string,f:binary,b:binary,s:struct<u:string,m:map<string,binary>>,z:timestamp,"
        "n:timestamp_ntz,d:decimal(30,2)>"
    )
    [row] = batch.collect().to_pylist()
    assert (row["u"], row["f"]) == (str(SOME[0]), b"ab")
    assert row["s"] == {"u": str(SOME[1]), "m": [("k", b"x")]}


@pytest.mark.parametrize(
    "type_", ["time", "timestamp_ns", "timestamptz_ns", "struct<t: time>", "array<time>"]
)
def test_types_that_spark_lacks(tmp_path, type_):
    table = create_table(tmp_path / "t", f"id long, at {type_}", format_version=3)
    append(table, [{"id": 1}])
    with pytest.raises(
        FeatureUnsupportedError, match=r"column 'at.* naming the other ones in the option col"
    ):
        Batch(table)
    assert Batch(table, columns="id").ids() == [1]


def test_after_every_kind_of_delete(tmp_path_factory):
    @settings(
        max_examples=15,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.data(), st.sampled_from([2, 3]), st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3)
    )
    def check(data, version, types):
        location = tmp_path_factory.mktemp("history") / "t"
        history = History(str(location), data.draw, version, types)
        for _ in range(4):
            history.checkpoint()
        live = sorted(row[NUMBER] for row in history.model.live())
        batch = Batch(history.table, split_size=1, split_file_open_cost=1)
        found = batch.collect()
        assert sorted(found["n"].to_pylist()) == live
        scanned = history.table.scan(columns=["n", "category"]).to_arrow()
        pairs = [sorted(map(str, rows.select(["n", "category"]).to_pylist())) for rows in (found, scanned)]
        assert pairs[0] == pairs[1]

    check()
