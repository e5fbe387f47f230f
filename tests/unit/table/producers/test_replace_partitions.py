from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from streamlake.catalog.open import open_table
from streamlake.errors import ConflictValidationError, InvalidOptionError
from streamlake.spec.metadata.data_file import FileContent
from streamlake.spec.metadata.manifest import FieldSummary
from streamlake.spec.types.data_types import UUIDType
from streamlake.spec.types.values import to_bytes
from streamlake.table.producers.overwrite_files import OverwriteFiles
from streamlake.table.producers.replace_partitions import ReplacePartitions
from streamlake.table.producers.row_delta import RowDelta
from tests.helpers.foreign_writers import evolve
from tests.helpers.invariants import check_table
from tests.helpers.tables import data_file, delete_file, make_table, stage
from tests.unit.table.producers.test_overwrite_files import append, names


@pytest.mark.parametrize("format_version", [2, 3])
def test_only_the_partitions_of_new_files_are_replaced(tmp_path: Path, format_version: int) -> None:
    table = make_table(tmp_path, partition_by=("category", "bucket(4, id)"), format_version=format_version)
    append(table, data_file(table, "a", 1, name="a1"), data_file(table, "a", 2, name="a2"))
    append(table, data_file(table, "b", 1, name="b1"))
    operation = ReplacePartitions(table).add_file(data_file(table, "a", 1, name="a1-new"))
    snapshot = operation.append_manifest(stage(table, data_file(table, "c", 0, name="c0"))).commit()
    assert names(table) == ["a1-new", "a2", "b1", "c0"]
    assert snapshot.summary["replace-partitions"] == "true"
    assert snapshot.summary["changed-partition-count"] == "2"
    assert snapshot.operation == "overwrite"
    check_table(open_table(str(tmp_path)))


@pytest.mark.parametrize("value", [None, float("nan"), -0.0, 1.5])
def test_null_and_nan_partitions_are_replaced(tmp_path: Path, value: Any) -> None:
    table = make_table(tmp_path, ddl="id long, x double", partition_by=("x",))
    append(table, data_file(table, value, name="old"), data_file(table, 7.0, name="other"))
    ReplacePartitions(table).add_file(data_file(table, value, name="new")).commit()
    assert names(table) == ["new", "other"]
    check_table(table)


def test_uuid_partitions_are_replaced_whatever_order_their_bounds_have(tmp_path: Path) -> None:
    """Iceberg's Java library takes the first half of a UUID for a signed number."""
    low, held, high = (UUID(int=first << 124) for first in (0x8, 0x9, 0x1))
    table = make_table(tmp_path, ddl="id long, u uuid", partition_by=("u",))
    append(table, *(data_file(table, value, name=str(value.int >> 124)) for value in (low, held, high)))
    assert table.current_snapshot is not None
    [manifest] = table.manifests(table.current_snapshot)
    bounds = FieldSummary(False, False, to_bytes(UUIDType(), low), to_bytes(UUIDType(), high))
    as_java_lists_it = replace(manifest, partitions=(bounds,))
    table.remember_manifests(table.current_snapshot.manifest_list or "", (as_java_lists_it,))
    ReplacePartitions(table).add_file(data_file(table, held, name="new")).commit()
    assert names(table) == ["1", "8", "new"]


def test_an_unpartitioned_table_is_replaced_whole(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, data_file(table, name="old"))
    ReplacePartitions(table).add_file(data_file(table, name="new")).commit()
    assert names(table) == ["new"]


def test_without_files_nothing_is_replaced(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, data_file(table, name="old"))
    ReplacePartitions(table).commit()
    assert names(table) == ["old"]
    check_table(table)


def test_append_only_refuses_a_partition_with_data(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))
    append(table, data_file(table, "a", name="a1"))
    ReplacePartitions(table).add_file(data_file(table, "b", name="b1")).validate_append_only().commit()
    operation = ReplacePartitions(table).add_file(data_file(table, "a", name="a2")).validate_append_only()
    with pytest.raises(ConflictValidationError, match="category=a already holds data"):
        operation.commit()
    assert names(table) == ["a1", "b1"]


def test_isolation_looks_at_the_replaced_partitions_only(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))
    one = data_file(table, "a", name="a1")
    start = append(table, one)
    other = open_table(str(tmp_path))
    append(other, data_file(other, "b"))

    def operation(level: str) -> ReplacePartitions:
        return ReplacePartitions(table).add_file(data_file(table, "a")).isolation(level, start)

    operation("serializable").commit()
    start = table.metadata.current_snapshot_id or 0
    other.refresh()
    append(other, data_file(other, "a", name="a2"))
    with pytest.raises(ConflictValidationError, match="a2"):
        operation("serializable").commit()
    operation("snapshot").commit()
    start = table.metadata.current_snapshot_id or 0
    other.refresh()
    target = data_file(other, "a", name="a3")
    append(other, target)
    RowDelta(other).add_deletes(delete_file(other, target)).commit()
    with pytest.raises(ConflictValidationError, match="deleted rows"):
        operation("snapshot").commit()


def test_a_global_equality_delete_concerns_every_partition(tmp_path: Path) -> None:
    table = make_table(tmp_path, partition_by=("category",))
    start = append(table, data_file(table, "a"))
    base = table.metadata
    unpartitioned = replace(base.spec, spec_id=1, fields=())
    table.operations.commit(base, replace(base, specs=(*base.specs, unpartitioned)))
    delete = replace(
        data_file(table, records=1),
        content=FileContent.EQUALITY_DELETES,
        spec_id=1,
        partition=(),
        equality_ids=(1,),
    )
    RowDelta(open_table(str(tmp_path))).add_deletes(delete).commit()
    operation = ReplacePartitions(table).add_file(data_file(table, "a")).isolation("snapshot", start)
    with pytest.raises(ConflictValidationError, match="deleted rows"):
        operation.commit()


def test_an_unknown_isolation_level_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="serializable, snapshot"):
        ReplacePartitions(make_table(tmp_path)).isolation("none", None)


@pytest.mark.parametrize("before", [(), ("bucket(2, id)",)], ids=["unpartitioned", "partitioned"])
def test_rows_of_another_spec_are_not_left_beside_the_new_ones(
    tmp_path: Path, before: tuple[str, ...]
) -> None:
    table = make_table(tmp_path, partition_by=before)
    append(table, data_file(table, *(1 for _ in before), name="old"))
    evolve(str(tmp_path), ["category"])
    table.refresh()
    new = data_file(
        table, *("a" if part.name == "category" else None for part in table.spec.fields), name="new"
    )
    with pytest.raises(ConflictValidationError, match=r"rows under partition spec 0.*rewrite_data_files"):
        ReplacePartitions(table).add_file(new).validate_one_spec().commit()
    assert names(table.refresh()) == ["old"]
    OverwriteFiles(table).overwrite_by_filter("true").commit()
    ReplacePartitions(table).add_file(new).validate_one_spec().commit()
    assert names(table) == ["new"]
