"""What must hold in every table after every commit, recounted from its manifests.

Called by tests of all rooms after their commits: `check_table(table)`. It raises AssertionError with the first thing
that is wrong: a data file live twice, counters that differ from a recount, two deletion vectors for one data file, a
delete file whose spec or partition is not its data file's, sequence numbers or row ids that do not fit together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from streamlake.formats.manifests.manifests import read_manifest
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.producers.summary import count_files
from streamlake.table.table import Table


def live_entries(table: Table, snapshot: Snapshot | None = None) -> list[ManifestEntry]:
    """Every live entry of a snapshot (None: the current one), data and deletes."""
    snapshot = snapshot or table.current_snapshot
    return [
        entry
        for manifest in table.manifests(snapshot)
        for entry in read_manifest(table.io, manifest, table.specs)
        if entry.is_live
    ]


def live_data_files(table: Table, snapshot: Snapshot | None = None) -> list[DataFile]:
    return [entry.data_file for entry in live_entries(table, snapshot) if entry.data_file.is_data]


def check_table(table: Table, *, files_exist: bool = False) -> None:
    """Check the newest version of a table: its logs, and the head of each branch and tag.

    `files_exist` also looks for every live file in storage.
    """
    table.refresh()
    check_metadata(table)
    heads = {ref.snapshot_id for ref in table.refs.values()}
    for snapshot_id in sorted(heads):
        snapshot = table.metadata.snapshot(snapshot_id)
        assert snapshot is not None, f"a ref points to snapshot {snapshot_id}, which is not there"
        check_snapshot(table, snapshot, files_exist=files_exist)


def check_metadata(table: Table) -> None:
    """Logs are in order, ids are unique, the main branch is the current snapshot."""
    metadata = table.metadata
    times = [entry.timestamp_ms for entry in metadata.snapshot_log]
    assert times == sorted(times), "the snapshot log goes back in time"
    assert metadata.last_updated_ms >= max(times, default=0), "last-updated-ms is before the last log entry"
    ids = [snapshot.snapshot_id for snapshot in metadata.snapshots]
    assert len(ids) == len(set(ids)), "two snapshots share an id"
    assert all(snapshot_id > 0 for snapshot_id in ids), "a snapshot id is not positive"
    main = metadata.refs.get("main")
    assert metadata.current_snapshot_id == (None if main is None else main.snapshot_id), "main is not current"
    if metadata.current_snapshot_id is not None:
        assert metadata.snapshot_log[-1].snapshot_id == metadata.current_snapshot_id, "the log ends elsewhere"
    numbers = [snapshot.sequence_number for snapshot in metadata.snapshots]
    assert metadata.last_sequence_number >= max(numbers, default=0), "last-sequence-number is behind"
    logged = [entry.metadata_file for entry in metadata.metadata_log]
    assert len(logged) == len(set(logged)), "a metadata file is logged twice"


def check_snapshot(table: Table, snapshot: Snapshot, *, files_exist: bool = False) -> None:
    """One snapshot against its manifests."""
    manifests = table.manifests(snapshot)
    paths = [manifest.manifest_path for manifest in manifests]
    assert len(paths) == len(set(paths)), "a manifest is listed twice"
    entries: list[ManifestEntry] = []
    for manifest in manifests:
        part = read_manifest(table.io, manifest, table.specs)
        entries.extend(part)
        _check_manifest_counts(manifest, part)
        for entry in part:
            assert (entry.data_file.content == FileContent.DATA) == (manifest.content == ManifestContent.DATA)
            assert entry.snapshot_id is not None
            assert entry.sequence_number is not None
            assert entry.sequence_number <= snapshot.sequence_number, "an entry is newer than its snapshot"
    live = [entry for entry in entries if entry.is_live]
    _check_unique(live)
    _check_deletes(table, live)
    _check_summary(snapshot, entries, live)
    if table.format_version >= 3 and snapshot.first_row_id is not None:
        _check_row_ids(table, live)
    if files_exist:
        for entry in live:
            assert table.io.exists(entry.data_file.file_path), f"{entry.data_file.file_path} is missing"


def _check_manifest_counts(manifest: object, entries: Iterable[ManifestEntry]) -> None:
    files: Counter[EntryStatus] = Counter()
    rows: Counter[EntryStatus] = Counter()
    for entry in entries:
        files[entry.status] += 1
        rows[entry.status] += entry.data_file.record_count
    for status, name in (
        (EntryStatus.ADDED, "added"),
        (EntryStatus.EXISTING, "existing"),
        (EntryStatus.DELETED, "deleted"),
    ):
        assert getattr(manifest, f"{name}_files_count") in (None, files[status]), (
            f"{name}_files_count is wrong"
        )
        assert getattr(manifest, f"{name}_rows_count") in (None, rows[status]), f"{name}_rows_count is wrong"


def _check_unique(live: Iterable[ManifestEntry]) -> None:
    seen = Counter((entry.data_file.file_path, entry.data_file.content_offset) for entry in live)
    twice = [path for path, count in seen.items() if count > 1]
    assert not twice, f"live twice: {twice[:3]}"


def _check_deletes(table: Table, live: Iterable[ManifestEntry]) -> None:
    data = {entry.data_file.file_path: entry for entry in live if entry.data_file.is_data}
    vectors: Counter[str] = Counter()
    for entry in live:
        file = entry.data_file
        if file.content != FileContent.POSITION_DELETES or file.referenced_data_file is None:
            continue
        target = data.get(file.referenced_data_file)
        if file.is_deletion_vector:
            vectors[file.referenced_data_file] += 1
            assert target is not None, (
                f"a deletion vector is left for {file.referenced_data_file}, which is gone"
            )
        if target is not None:
            assert _place(target.data_file) == _place(file), (
                f"{file.file_path} is not in the partition of {file.referenced_data_file}"
            )
            assert entry.sequence_number is not None
            assert target.sequence_number is not None
            assert entry.sequence_number >= target.sequence_number, (
                f"{file.file_path} is older than its data file"
            )
    twice = [path for path, count in vectors.items() if count > 1]
    assert not twice, f"two deletion vectors for {twice[:3]}"


def _place(file: DataFile) -> tuple[object, ...]:
    """Spec and partition of a file; NaN is the same as NaN."""
    return (file.spec_id, *("NaN" if value != value else value for value in file.partition))


def _check_summary(
    snapshot: Snapshot, entries: Iterable[ManifestEntry], live: Iterable[ManifestEntry]
) -> None:
    own = snapshot.snapshot_id
    added = count_files(
        e.data_file for e in entries if e.status == EntryStatus.ADDED and e.snapshot_id == own
    )
    removed = count_files(
        e.data_file for e in entries if e.status == EntryStatus.DELETED and e.snapshot_id == own
    )
    total = count_files(entry.data_file for entry in live)
    expected = {
        "added-data-files": added.data_files,
        "added-records": added.records,
        "added-files-size": added.size,
        "added-delete-files": added.delete_files,
        "added-dvs": added.dvs,
        "added-position-delete-files": added.position_delete_files,
        "added-equality-delete-files": added.equality_delete_files,
        "added-position-deletes": added.position_deletes,
        "added-equality-deletes": added.equality_deletes,
        "deleted-data-files": removed.data_files,
        "deleted-records": removed.records,
        "removed-files-size": removed.size,
        "removed-delete-files": removed.delete_files,
        "removed-dvs": removed.dvs,
        "removed-position-delete-files": removed.position_delete_files,
        "removed-equality-delete-files": removed.equality_delete_files,
        "removed-position-deletes": removed.position_deletes,
        "removed-equality-deletes": removed.equality_deletes,
        "total-data-files": total.data_files,
        "total-records": total.records,
        "total-files-size": total.size,
        "total-delete-files": total.delete_files,
        "total-position-deletes": total.position_deletes,
        "total-equality-deletes": total.equality_deletes,
    }
    if snapshot.summary.get("engine-name") == "streamlake":
        for key, value in expected.items():
            told = int(snapshot.summary.get(key, 0))
            assert told == value, f"snapshot {own}: {key} says {told}, the manifests say {value}"


def _check_row_ids(table: Table, live: Iterable[ManifestEntry]) -> None:
    ranges = []
    for entry in live:
        file = entry.data_file
        if file.is_data:
            assert file.first_row_id is not None, f"{file.file_path} has no first row id"
            ranges.append((file.first_row_id, file.first_row_id + file.record_count, file.file_path))
    ranges.sort()
    for (_, end, path), (start, _, other) in pairwise(ranges):
        assert end <= start, f"row ids of {path} and {other} overlap"
    assert max((end for _, end, _ in ranges), default=0) <= (table.metadata.next_row_id or 0)
