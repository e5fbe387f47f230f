"""Equality delete files: key columns or whole rows, by partition, of any spec, with nulls and zeros."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError, SchemaMismatchError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.readers import read_data_file
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED, parse_partition_by
from streamlake.storage.local import LocalFileIO
from streamlake.write.deletes.equality_deletes import equality_delete_writer
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from tests.unit.write.targets import make_target, paths_under

IO = LocalFileIO()
DDL = "id long, category string, amount double, st struct<a:int,b:string>, tags list<string>"
ROWS = [
    {
        "id": at if at % 4 else None,
        "category": "xyz"[at % 3],
        "amount": at / 2,
        "st": {"a": at, "b": f"b{at}"},
        "tags": ["t"],
    }
    for at in range(12)
]


def delete(
    target: WriteTarget, ids: Sequence[int], rows: list[dict[str, Any]], **options: Any
) -> list[DataFile]:
    output = OutputFiles(target, 3, 11, 0)
    writer = equality_delete_writer(target, output, ids, **options)
    table = pa.Table.from_pylist(rows, schema=schema_to_arrow(target.schema))
    half = len(rows) // 2
    for part in (table.slice(0, half), table.slice(half)):
        writer.write(part)
    return sorted(writer.close(), key=lambda file: repr(file.partition))


def rows_of(file: DataFile, target: WriteTarget, *names: str) -> list[dict[str, Any]]:
    schema = target.schema.select(names) if names else target.schema
    return [
        row
        for batch in read_data_file(IO, file.file_format, file.file_path, schema)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("file_format", ["parquet", "avro", "orc"])
def test_key_columns_alone(tmp_path: Path, file_format: str) -> None:
    target = make_target(tmp_path, DDL, properties={"write.delete.format.default": file_format})
    (file,) = delete(target, [1], ROWS)
    assert rows_of(file, target, "id") == [{"id": row["id"]} for row in ROWS]
    assert file.content == FileContent.EQUALITY_DELETES
    assert (file.file_format, file.spec_id, file.partition, file.equality_ids) == (file_format, 0, (), (1,))
    assert (file.record_count, file.file_size_in_bytes) == (12, os.path.getsize(file.file_path))
    assert (file.value_counts, file.null_value_counts) == ({1: 12}, {1: 3})
    assert file.lower_bounds == {1: (1).to_bytes(8, "little")}
    assert file.upper_bounds == {1: (11).to_bytes(8, "little")}
    assert file.sort_order_id is file.referenced_data_file is None
    assert Path(file.file_path).name.endswith(f"-00001-deletes.{file_format}")


def test_whole_rows(tmp_path: Path) -> None:
    target = make_target(tmp_path, DDL)
    (file,) = delete(target, [1, 2], ROWS, whole_row=True)
    assert rows_of(file, target) == ROWS
    assert file.equality_ids == (1, 2)
    assert set(file.value_counts or ()) >= {1, 2, 3}


def test_partitioned(tmp_path: Path) -> None:
    """By a column that is no key, and by one that is."""
    target = make_target(tmp_path, DDL, partition_by=["category", "bucket(2, id)"])
    files = delete(target, [1], ROWS)
    assert {file.partition[0] for file in files} == {"x", "y", "z"}
    assert {file.partition[1] for file in files} == {0, 1, None}
    assert sum(file.record_count for file in files) == 12
    for file in files:
        category, bucket = file.partition
        found = rows_of(file, target, "id")
        assert {row["category"] for row in ROWS if {"id": row["id"]} in found and row["id"]} <= {category}
        assert all((row["id"] is None) == (bucket is None) for row in found)
        assert Path(file.file_path).parent.relative_to(tmp_path).parts[1] == f"category={category}"
        assert set(file.value_counts or ()) == {1}


def test_another_spec(tmp_path: Path) -> None:
    """A table whose spec has changed is written deletes for each spec of its files, or for all of them at once."""
    target = make_target(tmp_path, DDL, partition_by=["category"])
    old = replace(parse_partition_by(["bucket(2, id)"], target.schema), spec_id=4)
    files = delete(target, [1], ROWS, spec=old)
    assert {(file.spec_id, file.partition) for file in files} == {(4, (None,)), (4, (0,)), (4, (1,))}
    (everywhere,) = delete(target, [1], ROWS, spec=replace(UNPARTITIONED, spec_id=2))
    assert (everywhere.spec_id, everywhere.partition) == (2, ())
    assert Path(everywhere.file_path).parent == tmp_path / "data"


def test_only_the_needed_columns_are_asked_for(tmp_path: Path) -> None:
    target = make_target(tmp_path, DDL, partition_by=["category"])
    output = OutputFiles(target, 0, 0, 0)
    writer = equality_delete_writer(target, output, [1])
    assert writer.columns == ("id", "category")
    writer.write(pa.table({"category": ["x"], "amount": [1.5], "id": pa.array([7], pa.int64())}))
    (file,) = writer.close()
    assert rows_of(file, target, "id") == [{"id": 7}]
    assert equality_delete_writer(target, output, [3], spec=UNPARTITIONED).columns == ("amount",)
    inner = target.schema.find("st.b")
    assert inner is not None
    assert equality_delete_writer(target, output, [inner.field_id]).columns == ("category", "st")


def test_a_key_in_a_struct(tmp_path: Path) -> None:
    target = make_target(tmp_path, DDL)
    inner = target.schema.find("st.a")
    assert inner is not None
    rows = [*ROWS, {**ROWS[0], "st": None}]
    (file,) = delete(target, [inner.field_id, 1], rows)
    found = rows_of(file, target, "id", "st.a")
    assert found[:12] == [{"id": row["id"], "st": {"a": row["st"]["a"]}} for row in ROWS]
    assert found[12] == {"id": None, "st": None}
    assert file.equality_ids == (inner.field_id, 1)


def test_zeros_have_both_signs(tmp_path: Path) -> None:
    target = make_target(tmp_path, "id long, a double, b float, c double")
    rows = [
        {"id": 1, "a": 0.0, "b": 1.0, "c": 0.0},
        {"id": 2, "a": -0.0, "b": 0.0, "c": 0.0},
        {"id": 3, "a": math.nan, "b": None, "c": 1.0},
        {"id": 4, "a": 2.0, "b": 3.0, "c": 0.0},
    ]
    (file,) = delete(target, [1, 2, 3], rows)
    found = sorted(repr(tuple(row.values())) for row in rows_of(file, target, "id", "a", "b"))
    assert found == sorted(
        [
            "(1, 0.0, 1.0)",
            "(1, -0.0, 1.0)",
            "(2, -0.0, 0.0)",
            "(2, 0.0, 0.0)",
            "(2, -0.0, -0.0)",
            "(2, 0.0, -0.0)",
            "(3, nan, None)",
            "(4, 2.0, 3.0)",
        ]
    )
    assert file.nan_value_counts == {2: 1, 3: 0}


def test_files_roll(tmp_path: Path) -> None:
    properties = {
        "write.delete.target-file-size-bytes": "10000",
        "write.delete.parquet.compression-codec": "uncompressed",
        "streamlake.parquet.encodings": "plain",
    }
    target = make_target(tmp_path, "id string", properties=properties)
    files = delete(target, [1], [{"id": f"{at * 7919:08d}"} for at in range(10_000)])
    assert 4 < len(files) < 30
    assert {row["id"] for file in files for row in rows_of(file, target, "id")} == {
        f"{at * 7919:08d}" for at in range(10_000)
    }


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert delete(make_target(tmp_path, DDL), [1], []) == []
    assert delete(make_target(tmp_path, DDL, partition_by=["category"]), [1], []) == []
    assert paths_under(tmp_path) == []


def test_an_abort_removes_what_is_open(tmp_path: Path) -> None:
    for partition_by in ((), ("category",)):
        target = make_target(tmp_path, DDL, partition_by=partition_by)
        output = OutputFiles(target, 0, 0, 0)
        writer = equality_delete_writer(target, output, [1])
        writer.write(pa.Table.from_pylist(ROWS, schema=schema_to_arrow(target.schema)))
        writer.abort()
        output.delete_all()
        assert paths_under(tmp_path) == []


def test_what_is_refused(tmp_path: Path) -> None:
    target = make_target(
        tmp_path, "id long not null, tags list<string>, st struct<x:double>, m map<string,long>"
    )
    output = OutputFiles(target, 0, 0, 0)
    for names, message in (
        ((), "at least one key column"),
        (("tags",), "'tags' of type list<string> cannot be a key"),
        (("tags.element",), "'tags.element' lies in a list or a map"),
        (("m.value",), "lies in a list or a map"),
        (("st",), "cannot be a key"),
        (("st.x",), "'st.x', a double inside a struct"),
    ):
        ids = [part.field_id for name in names if (part := target.schema.find(name)) is not None]
        assert len(ids) == len(names)
        with pytest.raises(InvalidOptionError, match=message):
            equality_delete_writer(target, output, ids)
    with pytest.raises(InvalidOptionError, match="field id 99 is not in the table's schema"):
        equality_delete_writer(target, output, [99])
    with pytest.raises(FeatureUnsupportedError, match="format version 1 has no deletes"):
        equality_delete_writer(replace(target, format_version=1), output, [1])
    writer = equality_delete_writer(target, output, [1])
    with pytest.raises(SchemaMismatchError, match="required column id"):
        writer.write(pa.table({"id": pa.array([1, None], pa.int64())}))
    writer.abort()


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.sampled_from("xyz"),
            st.none() | st.floats(width=64),
        ),
        max_size=60,
    ),
    st.sampled_from([(), ("category",), ("bucket(3, id)", "truncate(1, category)")]),
    st.sampled_from([(1,), (2, 1), (1, 2)]),
    st.booleans(),
)
def test_any_rows_survive(
    tmp_path: Path,
    values: list[tuple[Any, ...]],
    partition_by: tuple[str, ...],
    ids: tuple[int, ...],
    whole_row: bool,
) -> None:
    target = make_target(tmp_path, "id long, category string, amount double", partition_by=partition_by)
    rows = [{"id": id_, "category": category, "amount": amount} for id_, category, amount in values]
    files = delete(target, ids, rows, whole_row=whole_row, buffer_bytes=500)
    names = (
        ("id", "category", "amount") if whole_row else tuple(("id", "category")[at - 1] for at in sorted(ids))
    )
    found = sorted(repr(tuple(row.values())) for file in files for row in rows_of(file, target, *names))
    assert found == sorted(repr(tuple(row[name] for name in names)) for row in rows)
    assert all(file.equality_ids == ids for file in files)
