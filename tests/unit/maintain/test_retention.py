"""Which snapshots, branches and tags expire: Iceberg's rules, one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.maintain.retention import Retention, expired, require_deletable
from streamlake.spec.metadata.snapshot import Snapshot, SnapshotLogEntry, SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.updates.metadata_changes import without_snapshots
from tests.helpers.tables import make_table

NOW = 1_000_000


def history(tmp_path: Path, parents: dict[int, int | None], refs: dict[str, SnapshotRef]) -> TableMetadata:
    """Snapshot n was committed at the time n * 100; `refs` with main."""
    base = make_table(tmp_path / "t").metadata
    snapshots = tuple(
        Snapshot(each, parent, each, each * 100, f"l{each}") for each, parent in parents.items()
    )
    return replace(
        base,
        snapshots=snapshots,
        refs=refs,
        current_snapshot_id=refs["main"].snapshot_id,
        snapshot_log=tuple(SnapshotLogEntry(each * 100, each) for each in parents),
        last_updated_ms=0,
    )


def line(tmp_path: Path, count: int, **refs: Any) -> TableMetadata:
    parents = {each: each - 1 or None for each in range(1, count + 1)}
    return history(tmp_path, parents, {"main": SnapshotRef(count, "branch"), **refs})


def gone(base: TableMetadata, **given: Any) -> list[int]:
    return sorted(expired(base, retention(base, **given)).snapshots)


def retention(base: TableMetadata, **given: Any) -> Retention:
    return Retention.of(base.properties, NOW, **given)


def test_by_age_and_number(tmp_path: Path) -> None:
    base = line(tmp_path, 5)
    assert gone(base) == [], "they are younger than five days"
    assert gone(base, older_than_ms=NOW) == [1, 2, 3, 4]
    assert gone(base, older_than_ms=300) == [1, 2], "the time itself stays"
    assert gone(base, older_than_ms=NOW, retain_last=3) == [1, 2]
    assert gone(base, older_than_ms=NOW, retain_last=9) == []


def test_by_properties(tmp_path: Path) -> None:
    base = line(tmp_path, 5)
    properties = {
        "history.expire.max-snapshot-age-ms": str(NOW - 350),
        "history.expire.min-snapshots-to-keep": "4",
    }
    base = replace(base, properties=properties)
    assert gone(base) == [1]
    assert gone(base, retain_last=1) == [1, 2, 3]
    assert gone(base, older_than_ms=NOW) == [1]
    with pytest.raises(InvalidOptionError, match=r"history\.expire\.max-snapshot-age-ms='x'"):
        gone(replace(base, properties={"history.expire.max-snapshot-age-ms": "x"}))


def test_a_branch_and_a_tag_have_their_own(tmp_path: Path) -> None:
    parents: dict[int, int | None] = {1: None, 2: 1, 3: 2, 4: 2, 5: 4, 6: 5}
    refs = {
        "main": SnapshotRef(3, "branch"),
        "audit": SnapshotRef(6, "branch", min_snapshots_to_keep=2),
        "tag": SnapshotRef(1, "tag"),
    }
    base = history(tmp_path, parents, refs)
    assert gone(base, older_than_ms=NOW) == [2, 4]
    own_age = {**refs, "audit": SnapshotRef(6, "branch", max_snapshot_age_ms=NOW - 400)}
    assert gone(replace(base, refs=own_age), older_than_ms=NOW) == [2]


def test_branches_and_tags_expire_by_the_age_of_their_snapshot(tmp_path: Path) -> None:
    refs = {
        "old": SnapshotRef(1, "tag"),
        "own": SnapshotRef(2, "tag", max_ref_age_ms=NOW),
        "branch": SnapshotRef(3, "branch"),
        "lost": SnapshotRef(99, "tag"),
    }
    base = line(tmp_path, 5, **refs)
    base = replace(base, properties={"history.expire.max-ref-age-ms": str(NOW - 300)})
    found = expired(base, retention(base, older_than_ms=NOW))
    assert sorted(found.refs) == ["lost", "old"]
    assert sorted(found.snapshots) == [1, 4]


def test_a_snapshot_of_no_branch_goes_when_it_is_old(tmp_path: Path) -> None:
    base = history(tmp_path, {1: None, 2: 1, 3: 1}, {"main": SnapshotRef(3, "branch")})
    assert gone(base, older_than_ms=200, retain_last=2) == []
    assert gone(base, older_than_ms=201, retain_last=2) == [2]


def test_chosen_and_held_ones(tmp_path: Path) -> None:
    base = line(tmp_path, 5, tag=SnapshotRef(2, "tag"))
    assert gone(base, snapshot_ids=[3]) == [3]
    for needed in (2, 5):
        with pytest.raises(InvalidOptionError, match=f"snapshot {needed} cannot expire"):
            gone(base, snapshot_ids=[needed])
    assert sorted(expired(base, retention(base, older_than_ms=NOW), held={3}).snapshots) == [1, 4]


def test_what_is_left_of_the_metadata(tmp_path: Path) -> None:
    base = line(tmp_path, 5, tag=SnapshotRef(1, "tag"))
    statistics = ({"snapshot-id": 2, "statistics-path": "a"}, {"snapshot-id": 5, "statistics-path": "b"})
    base = replace(base, statistics=statistics, partition_statistics=statistics)
    new = expired(base, retention(base, older_than_ms=NOW, retain_last=2)).removed_from(base)
    assert [each.snapshot_id for each in new.snapshots] == [1, 4, 5]
    assert [entry.snapshot_id for entry in new.snapshot_log] == [4, 5], "no log across a gap"
    assert new.statistics == new.partition_statistics == statistics[1:]
    assert new.snapshots_by_id.keys() == {1, 4, 5}
    assert without_snapshots(new, {2, 3}) is new
    with pytest.raises(InvalidOptionError, match="the tag 'tag' needs it"):
        without_snapshots(base, {1})
    assert "tag" not in without_snapshots(base, {1}, {"tag"}).refs


def test_nothing_less_than_one_is_kept(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="at least one"):
        Retention.of({}, NOW, retain_last=0)


def test_a_table_that_forbids_deleting() -> None:
    require_deletable({}, "t")
    with pytest.raises(InvalidOptionError, match=r"gc\.enabled is false"):
        require_deletable({"gc.enabled": "false"}, "t")
