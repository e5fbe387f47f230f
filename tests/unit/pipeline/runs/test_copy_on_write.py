"""What copy-on-write does to a table beside its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlake import create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.errors import StorageError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.pipeline.key_index import indexed
from streamlake.read import planning
from streamlake.records import ROW_KIND
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import ManifestEntry
from streamlake.table.producers.append_files import AppendFiles
from tests.helpers import foreign_writers
from tests.helpers.invariants import check_table, live_data_files, live_entries
from tests.helpers.local_upserts import LocalUpserts

LINEAGE = ["id", "v", "_row_id", "_last_updated_sequence_number"]


def rows(values: dict[int, str]) -> pa.Table:
    return pa.table({"id": pa.array(list(values), pa.int64()), "v": list(values.values())})


def many_files(location: str, count: int) -> None:
    """An unpartitioned table gets `count` data files, of the keys 2 n and 2 n + 1 each."""
    table = open_table(location)
    schema = schema_to_arrow(table.schema)
    added = AppendFiles(table)
    for number in range(count):
        path = f"{location}/data/{number:05}.parquet"
        Path(path).parent.mkdir(exist_ok=True)
        pq.write_table(rows({2 * number: "old", 2 * number + 1: "old"}).cast(schema), path)
        size = Path(path).stat().st_size
        added.append_file(DataFile(FileContent.DATA, path, "parquet", 0, (), 2, size))
    added.commit()


@contextmanager
def planned_entries() -> Iterator[list[int]]:
    """How many entries there were in each manifest that was opened to learn of live files, while this is held."""
    read = planning.read_manifest
    counts: list[int] = []

    def counted(*arguments: Any, **options: Any) -> list[ManifestEntry]:
        entries = read(*arguments, **options)
        counts.append(len(entries))
        return entries

    with patch.object(planning, "read_manifest", counted):
        yield counts


def lineage_of(location: str) -> dict[int, tuple[Any, ...]]:
    found = load_table(location).scan(columns=LINEAGE).to_arrow()
    return {row["id"]: tuple(row.values()) for row in found.to_pylist()}


@pytest.mark.parametrize("version", [2, 3])
def test_cost_follows_the_batch(tmp_path: Path, version: int) -> None:
    """3,000 files, and 20 checkpoints of 10 keys in 10 files each, some of which an own checkpoint has written."""
    location = str(tmp_path / "t")
    create_table(location, "id long, v string", format_version=version)
    count = 3_000 if version == 3 else 300
    many_files(location, count)
    upserts = LocalUpserts(location, key=["id"], delete_mode="copy-on-write", tasks=1)
    upserts.checkpoint(rows({0: "new"}))  # reads the table once, to index it
    expected = {key: "new" if key == 0 else "old" for key in range(2 * count)}
    for number in range(20):
        keys = [(2 * (number * 8 + at)) % (2 * count) for at in range(10)]
        with planned_entries() as counts:
            upserts.checkpoint(rows(dict.fromkeys(keys, f"v{number}")))
        assert len(counts) <= 1
        assert sum(counts) <= 20
        expected.update(dict.fromkeys(keys, f"v{number}"))
    check_table(upserts.table)
    if version == 2:
        found = load_table(location).scan().to_arrow().sort_by("id")
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
        assert len(found) == len(expected)
        return
    after = lineage_of(location)
    assert {key: row[1] for key, row in after.items()} == expected
    untouched = {key for key, value in expected.items() if value == "old"}
    assert {key: after[key] for key in untouched} == {key: (key, "old", key, 1) for key in untouched}
    assert len({row[2] for row in after.values()}) == 2 * count


@pytest.mark.parametrize("merging", ["100", "2"], ids=["kept manifests", "merged manifests"])
def test_rows_that_only_move_keep_their_identity(tmp_path: Path, merging: str) -> None:
    location = str(tmp_path / "t")
    properties = {"commit.manifest.min-count-to-merge": merging}
    create_table(location, "id long, v string", format_version=3, properties=properties)
    upserts = LocalUpserts(location, key=["id"], delete_mode="copy-on-write", tasks=1)
    upserts.checkpoint(rows(dict.fromkeys(range(6), "old")))
    upserts.checkpoint(rows(dict.fromkeys(range(6, 12), "old")))
    before = lineage_of(location)
    for at in (2, 8, 4):
        upserts.checkpoint(rows({at: "new"}))
        check_table(upserts.table)
    after = lineage_of(location)
    moved = set(range(12)) - {2, 8, 4}
    assert {at: after[at] for at in moved} == {at: before[at] for at in moved}
    assert [after[at][3] for at in (2, 8, 4)] == [3, 4, 5]
    assert len({row[2] for row in after.values()}) == 12
    assert not {after[at][2] for at in (2, 8, 4)} & {row[2] for row in before.values()}


def test_rows_keep_the_identity_that_an_upgrade_gave_them(tmp_path: Path) -> None:
    """The first commit of version 3 gives the rows of all files their ids, those of files that it does not touch too."""
    location = str(tmp_path / "t")
    create_table(location, "id long, v string")
    upserts = LocalUpserts(location, key=["id"], delete_mode="copy-on-write", tasks=1)
    for first in (0, 6, 12):
        upserts.checkpoint(rows(dict.fromkeys(range(first, first + 6), "old")))
    foreign_writers.upgrade(location)
    upserts.checkpoint(rows({2: "new"}))
    before = lineage_of(location)
    assert None not in {row[2] for row in before.values()}
    upserts.checkpoint(rows({8: "new"}))
    upserts.checkpoint(rows({14: "new"}))
    check_table(upserts.table)
    moved = set(range(18)) - {2, 8, 14}
    after = lineage_of(location)
    assert {at: after[at] for at in moved} == {at: before[at] for at in moved}


def test_the_table_is_planned_where_a_commit_could_not_be_read_back(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    create_table(location, "id long, v string", format_version=3)
    upserts = LocalUpserts(location, key=["id"], delete_mode="copy-on-write", tasks=1)
    upserts.checkpoint(rows(dict.fromkeys(range(6), "old")))
    before = lineage_of(location)
    with patch.object(indexed, "read_manifests", side_effect=StorageError("the storage is away")):
        upserts.checkpoint(rows({2: "new"}))
    upserts.checkpoint(rows({4: "new"}))
    check_table(upserts.table)
    after = lineage_of(location)
    assert {at: after[at] for at in (0, 1, 3, 5)} == {at: before[at] for at in (0, 1, 3, 5)}


def delete_by_equality(location: str, *keys: int) -> None:
    name = "-".join(map(str, ("by-key", *keys)))
    other = LocalUpserts(location, key=["id"], delete_mode="equality", pipeline=name, job_id=name, tasks=1)
    gone = rows(dict.fromkeys(keys, ""))
    other.checkpoint(gone.append_column(ROW_KIND, pa.array([3] * len(keys), pa.int8())))


@pytest.mark.parametrize(
    ("version", "how"), [(2, "file"), (2, "shared"), (2, "keys"), (3, "file"), (3, "keys")]
)
def test_deletes_of_others_hold_for_files_that_are_rewritten_later(
    tmp_path: Path, version: int, how: str
) -> None:
    """Checkpoints in between touch other files, so that what others deleted is known from before them."""
    location = str(tmp_path / "t")
    create_table(location, "id long, v string", format_version=version)
    upserts = LocalUpserts(location, key=["id"], delete_mode="copy-on-write", tasks=1)
    for first in (0, 6, 12):
        upserts.checkpoint(rows(dict.fromkeys(range(first, first + 6), "old")))
    if how == "keys":
        delete_by_equality(location, 1, 7, 13)
    else:
        foreign_writers.delete_rows(location, [1, 7, 13], shared=how == "shared", column="id")
    for at in (2, 8, 14, 3):
        with planned_entries() as counts:
            upserts.checkpoint(rows({at: "new"}))
        assert at == 2 or sum(counts) <= 2
        check_table(upserts.table)
        live = load_table(location).scan(columns=["id"]).to_arrow()["id"].to_pylist()
        assert sorted(live) == [key for key in range(18) if key not in (1, 7, 13)]


def test_equality_deletes_that_are_older_than_every_file_are_not_read(tmp_path: Path) -> None:
    """A commit takes them out of the table, and whoever cleans up may then remove their files."""
    location = str(tmp_path / "t")
    create_table(location, "id long, v string")
    upserts = LocalUpserts(location, key=["id"], delete_mode="copy-on-write", tasks=1)
    upserts.checkpoint(rows(dict.fromkeys(range(6), "old")))
    delete_by_equality(location, 1)
    upserts.checkpoint(rows(dict.fromkeys(range(6, 12), "old")))
    delete_by_equality(location, 7)

    def by_key() -> set[str]:
        files = (entry.data_file for entry in live_entries(open_table(location)))
        return {file.file_path for file in files if file.content == FileContent.EQUALITY_DELETES}

    before = by_key()
    upserts.checkpoint(rows({2: "new"}))
    gone = before - by_key()
    assert len(gone) == 1
    Path(gone.pop()).unlink()
    upserts.checkpoint(rows({8: "new"}))
    check_table(upserts.table, files_exist=True)
    live = load_table(location).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert sorted(live) == [key for key in range(12) if key not in (1, 7)]


def test_nothing_is_rewritten_for_new_keys(tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    create_table(location, "id long, v string")
    upserts = LocalUpserts(location, key=["id"], delete_mode="copy-on-write")
    upserts.checkpoint(rows({1: "a", 2: "b"}))
    files = {file.file_path for file in live_data_files(upserts.table.refresh())}
    upserts.checkpoint(rows({3: "c", 4: "d"}))
    assert files < {file.file_path for file in live_data_files(upserts.table.refresh())}
    assert load_table(location).scan().count() == 4
