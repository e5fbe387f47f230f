"""Metadata files: round trip, gzip, the cache of snapshot texts, damaged files."""

from __future__ import annotations

import gzip
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from streamlake.errors import DataInvalidError, FeatureUnsupportedError, MissingFileError
from streamlake.formats.manifests import metadata_json
from streamlake.formats.manifests.metadata_json import metadata_bytes, parse_metadata, read_metadata
from streamlake.spec.metadata.snapshot import MetadataLogEntry, Snapshot, SnapshotLogEntry, SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata, metadata_to_json, new_table_metadata
from streamlake.spec.partitioning.partition_spec import parse_partition_by
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.local import LocalFileIO


def table(snapshots: int, version: int = 2) -> TableMetadata:
    schema = parse_ddl("id long not null, n\u00e4me string")
    base = new_table_metadata(
        location="/t",
        table_uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
        now_ms=1,
        schema=schema,
        spec=parse_partition_by(["n\u00e4me"], schema),
        format_version=version,
        properties={"a": 'quote " and \u65e5'},
    )
    made = tuple(
        Snapshot(
            at + 1,
            at or None,
            at + 1,
            1000 + at,
            f"/t/metadata/snap-{at}.avro",
            {"operation": "append", "note": "\u00fc"},
            0,
            extra={"future": [at]},
        )
        for at in range(snapshots)
    )
    return replace(
        base,
        snapshots=made,
        snapshot_log=tuple(SnapshotLogEntry(s.timestamp_ms, s.snapshot_id) for s in made),
        metadata_log=(MetadataLogEntry(1, "/t/metadata/v1.metadata.json"),),
        current_snapshot_id=made[-1].snapshot_id if made else None,
        refs={"main": SnapshotRef(made[-1].snapshot_id, "branch")} if made else {},
        extra={"from-the-future": {"kept": True}},
    )


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("snapshots", [0, 1, 5])
@pytest.mark.parametrize("compressed", [False, True])
def test_round_trip(tmp_path: Path, version: int, snapshots: int, compressed: bool) -> None:
    metadata = table(snapshots, version)
    io = LocalFileIO()
    path = str(tmp_path / "any-name")
    io.write_bytes(path, metadata_bytes(metadata, gzip=compressed))
    assert metadata_to_json(read_metadata(io, path)) == metadata_to_json(metadata)
    raw = io.read_bytes(path)
    text = gzip.decompress(raw) if compressed else raw
    assert json.loads(text) == metadata_to_json(metadata)


def test_gzip_is_deterministic() -> None:
    metadata = table(2)
    assert metadata_bytes(metadata, gzip=True) == metadata_bytes(metadata, gzip=True)


def test_snapshots_are_turned_into_json_once(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = table(3)
    first = metadata_bytes(metadata)
    calls = []

    def counted(snapshot: Snapshot) -> dict[str, object]:
        calls.append(snapshot.snapshot_id)
        return {"snapshot-id": snapshot.snapshot_id, "timestamp-ms": 0}

    monkeypatch.setattr(metadata_json, "snapshot_to_json", counted)
    assert metadata_bytes(metadata) == first
    more = replace(metadata, snapshots=(*metadata.snapshots, Snapshot(9, 3, 9, 9, "/l")))
    assert len(json.loads(metadata_bytes(more))["snapshots"]) == 4
    assert calls == [9]


def test_a_changed_snapshot_is_not_taken_for_its_original() -> None:
    metadata = table(2)
    metadata_bytes(metadata)
    other = replace(metadata.snapshots[1], summary={"operation": "delete"})
    changed = replace(metadata, snapshots=(metadata.snapshots[0], other))
    assert json.loads(metadata_bytes(changed))["snapshots"][1]["summary"] == {"operation": "delete"}


def test_snapshots_come_and_go() -> None:
    full = table(9)
    cuts = [full.snapshots[:at] for at in (9, 8, 9, 3, 0, 1)] + [full.snapshots[4:], full.snapshots[1:8]]
    for kept in cuts:
        changed = replace(full, snapshots=kept, snapshot_log=full.snapshot_log[: len(kept)])
        assert json.loads(metadata_bytes(changed)) == metadata_to_json(changed)


def test_a_failure_midway_leaves_nothing_behind() -> None:
    metadata = table(3)
    metadata_bytes(metadata)
    other = Snapshot(7, None, 1, 1, "/l")
    unfit = Snapshot(8, None, 1, 1, "/l", extra={"no JSON": object()})
    with pytest.raises(TypeError):
        metadata_bytes(replace(metadata, snapshots=(metadata.snapshots[0], other, unfit)))
    assert json.loads(metadata_bytes(metadata)) == metadata_to_json(metadata)


def test_threads_that_commit_to_one_table_do_not_mix_texts() -> None:
    base = table(40)
    variants = [
        replace(base, snapshots=(*base.snapshots[:cut], Snapshot(1000 + cut, None, 1, 1, "/l" * cut)))
        for cut in (36, 37, 38, 39, 40)
    ]
    expected = [metadata_to_json(variant) for variant in variants]

    def serialise(at: int) -> bool:
        return all(json.loads(metadata_bytes(variants[at])) == expected[at] for _ in range(60))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(variants)) as pool:
            assert all(pool.map(serialise, range(len(variants))))
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"this is not JSON", "not JSON"),
        (b'{"format-version": 2, ', "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not table metadata"),
        (b'{"a": 1}', "not table metadata"),
        (b'{"format-version": 2}', "required field"),
        (gzip.compress(b"{}", mtime=0)[:-6], "gzip"),
        (b"\x1f\x8bnonsense", "gzip"),
        (gzip.compress(b"nonsense", mtime=0), "not JSON"),
    ],
)
def test_files_that_are_no_metadata(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "v3.metadata.json"
    path.write_bytes(content)
    with pytest.raises(DataInvalidError, match=problem) as caught:
        read_metadata(LocalFileIO(), str(path))
    assert str(path) in str(caught.value)
    assert "restore" in str(caught.value)


def test_an_unknown_version_names_the_file() -> None:
    with pytest.raises(FeatureUnsupportedError, match=r"/t/v1\.metadata\.json.*version 4"):
        parse_metadata(b'{"format-version": 4}', "/t/v1.metadata.json")


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="v1"):
        read_metadata(LocalFileIO(), str(tmp_path / "v1.metadata.json"))


@pytest.mark.parametrize("version", [1, 2])
def test_pyiceberg_reads_it(tmp_path: Path, version: int) -> None:
    from pyiceberg.table.metadata import TableMetadataUtil

    theirs = TableMetadataUtil.parse_raw(metadata_bytes(table(3, version)).decode())
    assert theirs.current_snapshot_id == 3
    assert [snapshot.snapshot_id for snapshot in theirs.snapshots] == [1, 2, 3]
