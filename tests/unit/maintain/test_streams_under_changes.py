"""Streams of upserts go on while their table is looked after: rows deleted, partitions changed, the table renamed."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake import (
    ReplaceSortOrder,
    UpdatePartitionSpec,
    UpdateProperties,
    create_table,
    drop_table,
    load_table,
    rename_table,
)
from streamlake.catalog.open import open_table
from streamlake.errors import DataInvalidError, TableNotFoundError
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import FAST_CHECKS

DDL = "id long not null, v string"


def changes(ids: list[int], v: str) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([v] * len(ids))})


@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("version", [2, 3])
def test_no_row_is_lost_or_comes_back(tmp_path: Path, version: int, mode: str, delete_mode: str) -> None:
    """Deletes by filter between checkpoints, and between what a checkpoint has staged and its commit."""
    location = str(tmp_path / "t")
    properties = {"write.delete.mode": mode, **FAST_CHECKS}
    create_table(location, DDL, format_version=version, properties=properties)
    stream = LocalUpserts(location, key=["id"], delete_mode=delete_mode)
    model: dict[int, str] = {}
    chosen = random.Random(f"{version}{mode}{delete_mode}")

    def delete() -> None:
        low = chosen.randrange(40)
        load_table(location).delete(f"id >= {low} and id < {low + 6}")
        for each in range(low, low + 6):
            model.pop(each, None)

    for number in range(12):
        ids = chosen.sample(range(40), 8)
        within = number % 3 == 1
        stream.checkpoint(changes(ids, str(number)), (lambda _: delete()) if within else None)
        model.update(dict.fromkeys(ids, str(number)))
        if number % 3 == 2:
            delete()
        if number == 5:
            UpdatePartitionSpec(open_table(location)).add_field("bucket(2, id)").commit()
            ReplaceSortOrder(open_table(location)).by("id").commit()
        found = load_table(location).scan().to_arrow().to_pylist()
        assert sorted((row["id"], row["v"]) for row in found) == sorted(model.items()), number
        check_table(open_table(location), files_exist=True)


def catalog_of(home: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{home}/c.db", "warehouse": f"file://{home}/wh"}


def test_a_stream_whose_table_was_renamed_stops_and_loses_nothing(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path)
    create_table("db.t", DDL, catalog, properties=FAST_CHECKS)
    stream = LocalUpserts("db.t", key=["id"], opened=lambda name: open_table(name, catalog))
    stream.checkpoint(changes([1], "a"))
    rename_table("db.t", "db.u", catalog)
    with pytest.raises(TableNotFoundError, match=r"db\.t"):
        stream.checkpoint(changes([2], "b"))
    assert load_table("db.u", catalog).scan().count() == 1
    rename_table("db.u", "db.t", catalog)
    stream.restart()
    stream.checkpoint(changes([2], "b"))
    assert load_table("db.t", catalog).scan().count() == 2


def test_a_stream_whose_table_was_replaced_does_not_write_the_other_one(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path)
    create_table("db.t", DDL, catalog, properties=FAST_CHECKS)
    stream = LocalUpserts("db.t", key=["id"], opened=lambda name: open_table(name, catalog))
    stream.checkpoint(changes([1], "a"))
    drop_table("db.t", catalog, purge=True)
    create_table("db.t", DDL, catalog)
    with pytest.raises(DataInvalidError, match="another table now"):
        stream.checkpoint(changes([2], "b"))
    assert load_table("db.t", catalog).scan().count() == 0


def test_an_upgrade_between_two_checkpoints_goes_on_with_deletion_vectors(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    create_table(location, DDL, properties=FAST_CHECKS)
    stream = LocalUpserts(location, key=["id"])
    stream.checkpoint(changes([1, 2], "a"))
    UpdateProperties(open_table(location)).upgrade_format_version(3).commit()
    stream.checkpoint(changes([1], "b"))
    rows = {row["id"]: row["v"] for row in load_table(location).scan().to_arrow().to_pylist()}
    assert rows == {1: "b", 2: "a"}
    check_table(open_table(location), files_exist=True)
