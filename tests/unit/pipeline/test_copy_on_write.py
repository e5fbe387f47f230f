"""What copy-on-write does to a table beside its rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from streamlake import create_table, load_table
from tests.helpers.invariants import check_table, live_data_files
from tests.helpers.local_upserts import LocalUpserts

LINEAGE = ["id", "v", "_row_id", "_last_updated_sequence_number"]


def rows(values: dict[int, str]) -> pa.Table:
    return pa.table({"id": pa.array(list(values), pa.int64()), "v": list(values.values())})


def test_rows_that_only_move_keep_their_identity(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    create_table(location, "id long, v string", format_version=3)
    upserts = LocalUpserts(location, key=["id"], delete_mode="copy-on-write", tasks=1)
    upserts.checkpoint(rows(dict.fromkeys(range(6), "old")))
    before = {row["id"]: row for row in load_table(location).scan(columns=LINEAGE).to_arrow().to_pylist()}
    for at in (2, 4):
        upserts.checkpoint(rows({at: "new"}))
        check_table(upserts.table)
    after = {row["id"]: row for row in load_table(location).scan(columns=LINEAGE).to_arrow().to_pylist()}
    assert {at: row for at, row in after.items() if at not in (2, 4)} == {
        at: row for at, row in before.items() if at not in (2, 4)
    }
    assert [after[at]["_last_updated_sequence_number"] for at in (2, 4)] == [2, 3]
    assert len({row["_row_id"] for row in after.values()}) == 6
    assert not {after[at]["_row_id"] for at in (2, 4)} & {row["_row_id"] for row in before.values()}


def test_nothing_is_rewritten_for_new_keys(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    create_table(location, "id long, v string")
    upserts = LocalUpserts(location, key=["id"], delete_mode="copy-on-write")
    upserts.checkpoint(rows({1: "a", 2: "b"}))
    files = {file.file_path for file in live_data_files(upserts.table.refresh())}
    upserts.checkpoint(rows({3: "c", 4: "d"}))
    assert files < {file.file_path for file in live_data_files(upserts.table.refresh())}
    assert load_table(location).scan().count() == 4
