"""Rewritten manifests: the same files with the same numbers, in few manifests that planning can skip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streamlake import failpoints
from streamlake.catalog.open import open_table
from streamlake.errors import DataInvalidError
from streamlake.failpoints import FailpointError
from streamlake.ids import new_uuid
from streamlake.maintain.manifest_rewrite import rewrite_manifests
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent
from streamlake.table.manifests.file_matching import FileMatcher
from streamlake.table.producers import replace_manifests
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.replace_manifests import ReplaceManifests
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.table import Table
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.table.updates.update_properties import UpdateProperties
from streamlake.tables import load_table
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.tables import FaultyOperations, data_file, delete_file, make_table, metadata_files

NO_MERGE = {"commit.manifest-merge.enabled": "false"}


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def make(tmp_path: Path, version: int = 2, **properties: str) -> Table:
    given = {**NO_MERGE, **{key.replace("_", "."): value for key, value in properties.items()}}
    return make_table(
        tmp_path / "t",
        "id long, category string",
        partition_by=("bucket(8, id)", "category"),
        format_version=version,
        properties=given,
    )


def fill(table: Table, commits: int, each: int = 8) -> None:
    """Commits with one file for each bucket: every manifest has every bucket."""
    for number in range(commits):
        append = AppendFiles(table)
        for bucket in range(each):
            append.append_file(data_file(table, bucket, f"c{number % 3}", records=number + 1))
        append.commit()


def fill_large(table: Table, commits: int, each: int) -> None:
    """The same with many files, whose bounds do not compress."""
    for _ in range(commits):
        append = AppendFiles(table)
        for number in range(each):
            bounds = {"category": (new_uuid(), new_uuid())}
            append.append_file(data_file(table, number % 8, "c", records=5, bounds=bounds))
        append.commit()


def state(table: Table, branch: str = "main") -> dict[Any, Any]:
    """Everything that the live entries say, but their status and their manifest."""
    found = {
        entry.data_file.identity: replace(entry, status=EntryStatus.EXISTING)
        for entry in live_entries(table, table.metadata.head(branch))
    }
    assert len(found) == len(live_entries(table, table.metadata.head(branch)))
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_many_become_one_and_nothing_else_changes(version: int, tmp_path: Path) -> None:
    table = make(tmp_path, version)
    fill(table, 6)
    target = state(table)[next(iter(state(table)))].data_file
    RowDelta(table).add_deletes(delete_file(table, target)).commit()
    other = next(file.data_file for file in state(table).values() if file.data_file.partition[0] == 5)
    RowDelta(table).add_deletes(delete_file(table, other, "e")).commit()
    last = next(file.data_file for file in state(table).values() if file.data_file.partition[0] == 7)
    RowDelta(table).add_deletes(delete_file(table, last, "f")).commit()
    before = state(table)
    planned = rewrite_manifests(table, dry_run=True)
    assert (planned.rewritten, planned.before, planned.after) == (9, 9, None)
    done = rewrite_manifests(table)
    assert (done.rewritten, done.added, done.before, done.after) == (9, 2, 9, 2)
    table.refresh()
    check_table(table)
    assert state(table) == before, "statistics, sequence numbers and row ids too"
    summary = table.current_snapshot.summary if table.current_snapshot else {}
    assert summary["operation"] == "replace"
    assert (summary["manifests-created"], summary["manifests-replaced"]) == ("2", "9")
    assert summary["entries-processed"] == "51"
    parent = table.metadata.snapshot(table.current_snapshot.parent_snapshot_id or 0)
    assert parent is not None
    assert {key: value for key, value in summary.items() if key.startswith("total-")} == {
        key: value for key, value in parent.summary.items() if key.startswith("total-")
    }
    again = rewrite_manifests(table)
    assert (again.rewritten, again.snapshot_id) == (0, None)


def test_planning_with_a_partition_filter_reads_few(tmp_path: Path) -> None:
    table = make(tmp_path)
    fill_large(table, 6, 1_100)
    before = state(table)
    rewrite_manifests(table)
    (one,) = table.manifests(table.current_snapshot)
    assert one.manifest_length > 5 * 65_536, "else nothing can be cut"
    UpdateProperties(table).set("commit.manifest.target-size-bytes", str(one.manifest_length // 5)).commit()
    rewrite_manifests(table)
    manifests = table.manifests(table.current_snapshot)
    assert 4 <= len(manifests) <= 6
    assert max(each.manifest_length for each in manifests) < 1.4 * one.manifest_length / 5
    matcher = FileMatcher(table.schema, "id = 34")
    matching = [each for each in manifests if matcher.manifest_might_match(each, table.spec)]
    assert 1 <= len(matching) <= 2
    assert state(table) == before
    assert rewrite_manifests(table).rewritten == 0
    fill(table, 1)
    assert rewrite_manifests(table).rewritten == len(manifests) + 1, "it has files of every bucket"
    manifests = table.manifests(table.current_snapshot)
    AppendFiles(table).append_file(data_file(table, 7, "c0")).commit()
    assert rewrite_manifests(table).rewritten == 0, "it overlaps with nothing"
    append = AppendFiles(table).append_file(data_file(table, 7, "c0"))
    append.append_file(data_file(table, 6, "c0")).commit()
    assert 2 <= rewrite_manifests(table).rewritten <= len(manifests), "only what it overlaps with"


def test_a_target_smaller_than_a_header(tmp_path: Path) -> None:
    table = make(tmp_path, **{"commit.manifest.target-size-bytes": "1"})
    fill(table, 5)
    assert rewrite_manifests(table).added == 1
    assert rewrite_manifests(table).rewritten == 0


@pytest.mark.parametrize("version", [2, 3])
def test_an_append_meanwhile_is_not_lost(version: int, tmp_path: Path) -> None:
    table = make(tmp_path, version)
    fill(table, 4)
    left = 2

    def meanwhile() -> None:
        nonlocal left
        if left:
            left -= 1
            fill(open_table(table.location), 1)

    racing = Table("t", FaultyOperations(table.operations, before_swap=meanwhile))
    done = rewrite_manifests(racing)
    assert done.snapshot_id == open_table(table.location).metadata.current_snapshot_id
    fresh = open_table(table.location)
    assert len(state(fresh)) == 6 * 8
    check_table(fresh)
    used = {each.manifest_path for each in fresh.manifests(fresh.current_snapshot)}
    assert done.rewritten == 4, "what came meanwhile does not make it begin again"
    assert done.after == 3
    own = [name for name in metadata_files(fresh) if f"snap-{done.snapshot_id}" in name]
    assert len(own) == 1, "lists and manifests of earlier attempts are gone"
    assert all(Path(path).exists() for path in used)


def test_a_branch(tmp_path: Path) -> None:
    table = make(tmp_path)
    fill(table, 3)
    ManageRefs(table).create_branch("side").commit()
    fill(table, 1)
    before = (state(table), state(table, "side"))
    main = table.metadata.current_snapshot_id
    assert load_table(table.location).rewrite_manifests(branch="side").rewritten == 3
    table.refresh()
    assert table.metadata.current_snapshot_id == main
    assert (state(table), state(table, "side")) == before


def test_rows_get_their_ids_in_an_upgraded_table(tmp_path: Path) -> None:
    table = make(tmp_path)
    fill(table, 3)
    UpdateProperties(table).upgrade_format_version(3).commit()
    rewrite_manifests(table)
    check_table(table)
    starts = sorted(
        (entry.data_file.first_row_id, entry.data_file.record_count) for entry in state(table).values()
    )
    assert starts[0][0] == 0
    assert all(one[0] + one[1] <= other[0] for one, other in pairwise(starts))
    before = state(table)
    fill(table, 3)
    rewrite_manifests(table)
    assert {key: value for key, value in state(table).items() if key in before} == before


@pytest.mark.parametrize(
    "place", ["manifest-rewritten", "manifest-list-written", "before-swap", "after-swap", "before-clean-up"]
)
def test_a_stop_anywhere_changes_no_file(place: str, tmp_path: Path) -> None:
    table = make(tmp_path)
    fill(table, 4)
    before = state(table)
    failpoints.arm(f"{place}=raise")
    with pytest.raises(FailpointError):
        rewrite_manifests(table)
    failpoints.arm("")
    fresh = open_table(table.location)
    check_table(fresh)
    assert state(fresh) == before
    rewrite_manifests(fresh)
    assert state(fresh) == before
    assert len(fresh.manifests(fresh.current_snapshot)) == 1


def test_a_file_less_is_never_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path)
    fill(table, 4)
    parts = replace_manifests._parts
    monkeypatch.setattr(replace_manifests, "_parts", lambda entries, count: parts(entries[1:], count))
    with pytest.raises(DataInvalidError, match="list 32 files, but the manifests made of them 31"):
        ReplaceManifests(table).commit()
    assert len(open_table(table.location).snapshots) == 4


def test_manifests_without_live_files_go(tmp_path: Path) -> None:
    table = make(tmp_path)
    fill(table, 3)
    for entry in list(state(table).values())[:8]:
        RowDelta(table).remove_rows(entry.data_file).commit()
    before = state(table)
    rewrite_manifests(table)
    manifests = table.manifests(table.current_snapshot)
    assert [each.content for each in manifests] == [ManifestContent.DATA]
    assert state(table) == before
