"""`diagnose` on tables that are well, and on tables that were damaged in each way: it finds exactly that."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake import ids
from streamlake.catalog.open import open_table
from streamlake.checkpoint.committable import Committable, committable_from_bytes, committable_to_bytes
from streamlake.errors import FeatureUnsupportedError, InvalidOptionError, TableNotFoundError
from streamlake.operate.doctor.diagnosis import Diagnosis, diagnose
from streamlake.operate.doctor.finding import Finding, Findings, Severity
from streamlake.pipeline.direct.offset_log import require_tick
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import EntryStatus, ManifestContent, ManifestEntry, ManifestFile
from streamlake.spec.metadata.snapshot import SnapshotLogEntry, SnapshotRef
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.table import Table
from streamlake.table.updates.manage_refs import ManageRefs
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.deletes.deletion_vectors import write_deletion_vectors
from streamlake.write.deletes.position_deletes import write_position_deletes
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from tests.helpers.batch_write import append, write_files
from tests.helpers.damage import cut_short, head, left_behind, rewrite_head, rewrite_metadata, with_summary
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table


def changes(rows: dict[int, int]) -> pa.Table:
    return pa.table({"id": pa.array(list(rows), pa.int64()), "v": pa.array(list(rows.values()), pa.int64())})


@pytest.fixture(params=[2, 3])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> LocalUpserts:
    """Three checkpoints with deletes; position deletes in version 2, deletion vectors in version 3."""
    make_table(tmp_path / "t", "id long, v long", format_version=request.param)
    upserts = LocalUpserts(str(tmp_path / "t"), key=["id"])
    upserts.checkpoint(changes({key: key for key in range(80)}))
    upserts.checkpoint(changes(dict.fromkeys(range(10), 1000)))
    upserts.checkpoint(changes({key: key for key in range(80, 100)}))
    return upserts


def table_of(stream: LocalUpserts) -> Table:
    return open_table(stream.location)


def found(location: str, checkpoint: Path | None = None, **options: Any) -> dict[str, Finding]:
    """The violations by their kind, of which there is one each."""
    diagnosis = diagnose(location, checkpoint=None if checkpoint is None else str(checkpoint), **options)
    assert diagnosis.is_healthy is (not diagnosis.violations)
    kinds = [finding.check for finding in diagnosis.violations]
    assert len(kinds) == len(set(kinds)), diagnosis.violations
    return {finding.check: finding for finding in diagnosis.violations}


def only(location: str, check: str, severity: Severity = Severity.ERROR, **options: Any) -> Finding:
    """The one violation that there is, of this kind."""
    violations = found(location, **options)
    assert list(violations) == [check]
    assert violations[check].severity is severity
    assert violations[check].fix
    return violations[check]


def live_files(table: Table) -> list[DataFile]:
    return [entry.data_file for entry in live_entries(table)]


def a_data_file(table: Table) -> str:
    return next(file.file_path for file in live_files(table) if file.is_data)


def a_delete_file(table: Table) -> DataFile:
    return next(file for file in live_files(table) if not file.is_data)


class TestHealthy:
    def test_upserts(self, stream: LocalUpserts) -> None:
        diagnosis = diagnose(stream.location, orphan_age_ms=0)
        assert (diagnosis.findings, diagnosis.orphans) == ((), ())
        assert (diagnosis.snapshots, diagnosis.is_healthy) == (3, True)
        assert [(each.checkpoint_id, each.state) for each in diagnosis.staged] == [(2, "committed")]
        assert diagnosis.files == sum(path.is_file() for path in Path(stream.location).rglob("*"))

    def test_partitions_branches_and_foreign_commits(self, tmp_path: Path) -> None:
        table = make_table(
            tmp_path / "t", "id long, v long", partition_by=("bucket(4, id)",), format_version=3
        )
        append(table, changes(dict.fromkeys(range(50), 1)))
        ManageRefs(table).create_branch("audit").create_tag("then").commit()
        append(table, changes(dict.fromkeys(range(50, 90), 2)), branch="audit")
        upserts = LocalUpserts(table.location, key=["id"])
        upserts.checkpoint(changes(dict.fromkeys(range(0, 90, 2), 3)))
        append(table.refresh(), changes({1_000: 1}))
        diagnosis = diagnose(table.location, orphan_age_ms=0)
        assert diagnosis.violations == ()
        assert [finding.check for finding in diagnosis.findings] == ["index-behind"]

    @pytest.mark.parametrize("mode", ["equality", "copy-on-write"])
    def test_other_delete_modes(self, mode: str, tmp_path: Path) -> None:
        make_table(tmp_path / "t", "id long, v long")
        upserts = LocalUpserts(str(tmp_path / "t"), key=["id"], delete_mode=mode)
        for value in range(3):
            upserts.checkpoint(changes(dict.fromkeys(range(value * 10, 60), value)))
        assert diagnose(upserts.location, orphan_age_ms=0).findings == ()

    def test_an_empty_table(self, tmp_path: Path) -> None:
        make_table(tmp_path / "t")
        assert diagnose(str(tmp_path / "t"), orphan_age_ms=0).findings == ()

    def test_expired_snapshots(self, stream: LocalUpserts) -> None:
        def expire(metadata: TableMetadata) -> TableMetadata:
            kept = tuple(
                each for each in metadata.snapshots if each.snapshot_id == metadata.current_snapshot_id
            )
            return replace(metadata, snapshots=kept, snapshot_log=metadata.snapshot_log[-1:])

        rewrite_metadata(table_of(stream), expire)
        diagnosis = diagnose(stream.location, orphan_age_ms=0)
        assert {finding.check for finding in diagnosis.violations} <= {
            "orphan-metadata-files",
            "orphan-data-files",
            "orphan-index-files",
        }
        live = {file.file_path for file in live_files(table_of(stream))}
        data = {str(path) for path in Path(stream.location, "data").rglob("*") if path.is_file()}
        assert {orphan.path for orphan in diagnosis.orphans if orphan.kind == "data"} == data - live


class TestFiles:
    def test_a_data_file_is_cut_short(self, stream: LocalUpserts) -> None:
        path = a_data_file(table_of(stream))
        cut_short(path)
        finding = only(stream.location, "file-size")
        assert finding.where == path
        assert "data file" in finding.what

    def test_a_data_file_is_missing(self, stream: LocalUpserts) -> None:
        path = a_data_file(table_of(stream))
        Path(path).unlink()
        assert only(stream.location, "file-missing").where == path

    def test_a_delete_file_is_missing(self, stream: LocalUpserts) -> None:
        path = a_delete_file(table_of(stream)).file_path
        Path(path).unlink()
        assert only(stream.location, "file-missing").where == path

    def test_a_file_outside_of_the_tables_folders(self, stream: LocalUpserts, tmp_path: Path) -> None:
        table = table_of(stream)
        other = make_table(tmp_path / "other", "id long, v long", format_version=table.format_version)
        file = write_files(other, changes({7: 7})).data_files[0]
        append_file = RowDelta(table)
        append_file.add_rows(file)
        append_file.commit()
        assert found(stream.location) == {}
        cut_short(file.file_path)
        assert only(stream.location, "file-size").where == file.file_path
        Path(file.file_path).unlink()
        assert only(stream.location, "file-missing").where == file.file_path

    def test_a_manifest_is_missing(self, stream: LocalUpserts) -> None:
        table = table_of(stream)
        path = table.manifests(head(table))[0].manifest_path
        Path(path).unlink()
        assert only(stream.location, "manifest-missing").where == path

    def test_a_manifest_is_damaged(self, stream: LocalUpserts) -> None:
        table = table_of(stream)
        path = table.manifests(head(table))[0].manifest_path
        cut_short(path, 30)
        finding = only(stream.location, "manifest-damaged")
        assert finding.where == path
        assert "branch 'main'" in finding.what

    def test_a_manifest_list_is_missing_or_damaged(self, stream: LocalUpserts) -> None:
        path = str(head(table_of(stream)).manifest_list)
        cut_short(path, 30)
        assert only(stream.location, "manifest-list-damaged").where == path
        Path(path).unlink()
        assert only(stream.location, "manifest-list-missing").where == path

    def test_what_cannot_be_read_makes_no_orphans(self, stream: LocalUpserts) -> None:
        table = table_of(stream)
        left_behind(Path(stream.location, "data", "orphan.parquet"))
        Path(table.manifests(head(table))[0].manifest_path).unlink()
        diagnosis = diagnose(stream.location, orphan_age_ms=0)
        assert diagnosis.orphans == ()
        assert "orphans-unknown" in {finding.check for finding in diagnosis.findings}


class TestSnapshots:
    def test_a_data_file_is_live_twice(self, stream: LocalUpserts) -> None:
        table = table_of(stream)

        def twice(manifest: ManifestFile, entries: list[ManifestEntry]) -> list[ManifestEntry]:
            return [*entries, entries[0]] if manifest.content == ManifestContent.DATA else entries

        path = a_data_file(table)
        rewrite_head(table, twice)
        violations = found_all(stream.location)
        assert path in {finding.where for finding in violations["file-live-twice"]}
        assert set(violations) == {"file-live-twice", "summary-counters"}

    @pytest.mark.parametrize("stream", [3], indirect=True)
    def test_two_deletion_vectors_for_a_data_file(self, stream: LocalUpserts) -> None:
        table = table_of(stream)
        known = a_delete_file(table)
        target = next(file for file in live_files(table) if file.file_path == known.referenced_data_file)
        vector = _deletes(table, target, [20])

        # The product refuses to commit this, so it comes in by the back door.
        def second(manifest: ManifestFile, entries: list[ManifestEntry]) -> list[ManifestEntry]:
            if manifest.content == ManifestContent.DATA:
                return entries
            return [*entries, *(replace(entries[0], data_file=file) for file in vector)]

        rewrite_head(table, second)
        violations = found_all(stream.location)
        assert [finding.where for finding in violations["deletion-vector"]] == [target.file_path]
        assert set(violations) == {"deletion-vector", "summary-counters"}

    def test_counters_of_a_summary(self, stream: LocalUpserts) -> None:
        table = table_of(stream)
        rewrite_metadata(
            table, lambda metadata: with_summary(metadata, total_records="7", added_data_files="9")
        )
        finding = only(stream.location, "summary-counters")
        assert f"snapshot {head(table).snapshot_id}" == finding.where
        assert "total-records says 7" in finding.what
        assert "added-data-files says 9" in finding.what
        # What comes after has inherited the wrong total, and is not to blame.
        stream.checkpoint(changes({500: 1}))
        assert only(stream.location, "summary-counters").where == finding.where

    def test_counts_of_a_manifest(self, stream: LocalUpserts) -> None:
        table = table_of(stream)

        def wrong(manifests: list[ManifestFile]) -> list[ManifestFile]:
            rows = (manifests[0].added_rows_count or 0) + 5
            return [replace(manifests[0], added_rows_count=rows), *manifests[1:]]

        rewrite_head(table, manifests=wrong)
        finding = only(stream.location, "manifest-counts")
        assert finding.where == table.manifests(head(table))[0].manifest_path

    def test_a_manifest_is_listed_twice(self, stream: LocalUpserts) -> None:
        rewrite_head(table_of(stream), manifests=lambda listed: [*listed, listed[0]])
        only(stream.location, "manifest-listed-twice")

    def test_a_delete_under_another_partition(self, tmp_path: Path) -> None:
        table = make_table(tmp_path / "t", "id long, v long", partition_by=("v",))
        append(table, changes(dict.fromkeys(range(10), 1)))
        [target] = live_files(table)
        delta = RowDelta(table)
        for file in _deletes(table, target, [3]):
            delta.add_deletes(file)
        delta.commit()
        assert found(table.location) == {}

        def moved(manifest: ManifestFile, entries: list[ManifestEntry]) -> list[ManifestEntry]:
            if manifest.content == ManifestContent.DATA:
                return entries
            return [replace(e, data_file=replace(e.data_file, partition=(2,))) for e in entries]

        rewrite_head(table, moved)
        assert target.file_path in only(table.location, "delete-scope").what

    @pytest.mark.parametrize("version", [2, 3])
    def test_a_position_that_the_data_file_does_not_have(self, version: int, tmp_path: Path) -> None:
        table = make_table(tmp_path / "t", "id long, v long", format_version=version)
        append(table, changes(dict.fromkeys(range(10), 1)))
        [target] = live_files(table)
        delta = RowDelta(table)
        for file in _deletes(table, target, [3, 10]):
            delta.add_deletes(file)
        delta.commit()
        assert "10 rows" in only(table.location, "delete-position").what
        assert found(table.location, deletes=False) == {}

    @pytest.mark.parametrize("version", [2, 3])
    def test_a_delete_file_that_cannot_be_read(self, version: int, tmp_path: Path) -> None:
        table = make_table(tmp_path / "t", "id long, v long", format_version=version)
        append(table, changes(dict.fromkeys(range(10), 1)))
        delta = RowDelta(table)
        for file in _deletes(table, live_files(table)[0], [3]):
            delta.add_deletes(file)
        delta.commit()
        path = Path(a_delete_file(table).file_path)
        path.write_bytes(b"?" * path.stat().st_size)
        assert only(table.location, "delete-unreadable").where == str(path)

    @pytest.mark.parametrize("stream", [3], indirect=True)
    def test_row_ids(self, stream: LocalUpserts) -> None:
        table = table_of(stream)
        rewrite_metadata(table, lambda metadata: replace(metadata, next_row_id=5))
        violations = found_all(stream.location)
        assert set(violations) == {"row-lineage"}

    @pytest.mark.parametrize("stream", [3], indirect=True)
    def test_row_ids_that_overlap(self, stream: LocalUpserts) -> None:
        table = table_of(stream)

        def same(manifest: ManifestFile, entries: list[ManifestEntry]) -> list[ManifestEntry]:
            return [
                replace(e, status=EntryStatus.EXISTING, data_file=replace(e.data_file, first_row_id=0))
                if e.data_file.is_data
                else e
                for e in entries
            ]

        rewrite_head(table, same)
        violations = found_all(stream.location)
        assert "rows share ids" in violations["row-lineage"][0].what


def found_all(location: str) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in diagnose(location).violations:
        found.setdefault(finding.check, []).append(finding)
    return found


def _deletes(table: Table, target: DataFile, positions: list[int]) -> list[DataFile]:
    write = write_deletion_vectors if table.format_version >= 3 else write_position_deletes
    to = WriteTarget.for_table(
        table.metadata, io=table.io, job_id="d", checkpoint_id=0, operation_uuid=ids.new_uuid()
    )
    place = DeletedFile(target.file_path, target.spec_id, target.partition)
    return list(write(to, OutputFiles(to, 0, 0, 0), {place: np.array(positions, dtype=np.int64)}))


METADATA_DAMAGE: dict[str, tuple[str, Callable[[TableMetadata], TableMetadata]]] = {
    "a tag of nowhere": (
        "metadata-refs",
        lambda metadata: replace(metadata, refs={**metadata.refs, "gone": SnapshotRef(42, "tag")}),
    ),
    "a snapshot log that ends elsewhere": (
        "snapshot-log",
        lambda metadata: replace(
            metadata,
            snapshot_log=(*metadata.snapshot_log, SnapshotLogEntry(metadata.last_updated_ms, 42)),
        ),
    ),
    "sequence numbers that were given out before": (
        "sequence-numbers",
        lambda metadata: replace(metadata, last_sequence_number=1),
    ),
}


@pytest.mark.parametrize("damage", METADATA_DAMAGE)
def test_metadata(damage: str, stream: LocalUpserts) -> None:
    check, change = METADATA_DAMAGE[damage]
    rewrite_metadata(table_of(stream), change)
    only(stream.location, check)


def test_metadata_that_cannot_be_read(stream: LocalUpserts) -> None:
    newest = max(
        Path(stream.location, "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:-14])
    )
    cut_short(newest, 100)
    finding = only(stream.location, "metadata-unreadable")
    assert newest.name in finding.what


def test_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        diagnose(str(tmp_path / "none"))


class TestOrphans:
    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("data/00000-0-lost-00001.parquet", "data"),
            ("data/id_bucket=1/lost.parquet", "data"),
            ("metadata/lost-m0.avro", "metadata"),
            ("metadata/_index/lost.run", "index"),
        ],
    )
    def test_a_file_that_nothing_refers_to(self, name: str, kind: str, stream: LocalUpserts) -> None:
        path = left_behind(Path(stream.location, name))
        finding = only(stream.location, f"orphan-{kind}-files", Severity.WARNING)
        assert finding.where == str(path)
        [orphan] = diagnose(stream.location).orphans
        assert (orphan.path, orphan.size, orphan.kind) == (str(path), len(b"left behind"), kind)

    def test_a_young_file_may_be_work_in_progress(self, stream: LocalUpserts) -> None:
        Path(stream.location, "data", "new.parquet").write_bytes(b"1")
        assert diagnose(stream.location).orphans == ()
        assert len(diagnose(stream.location, orphan_age_ms=0).orphans) == 1

    def test_temporary_files(self, stream: LocalUpserts) -> None:
        left_behind(Path(stream.location, "metadata", ".v9.metadata.json.abc.tmp"))
        left_behind(Path(stream.location, "metadata", "streamlake", "job", ".checkpoint.abc.tmp"))
        assert "2 temporary files" in only(stream.location, "temporary-files", Severity.WARNING).what

    def test_older_versions_of_the_metadata_are_history(self, tmp_path: Path) -> None:
        table = make_table(
            tmp_path / "t", "id long, v long", properties={"write.metadata.previous-versions-max": "1"}
        )
        for value in range(4):
            append(table, changes({value: value}))
        assert len(table.metadata.metadata_log) == 1
        assert diagnose(table.location, orphan_age_ms=0).findings == ()

    def test_data_in_a_shared_folder_is_left_alone(self, tmp_path: Path) -> None:
        shared = tmp_path / "shared"
        table = make_table(tmp_path / "t", "id long, v long", properties={"write.data.path": str(shared)})
        append(table, changes({1: 1}))
        left_behind(shared / "another-table.parquet")
        diagnosis = diagnose(table.location, orphan_age_ms=0)
        assert (diagnosis.orphans, diagnosis.is_healthy) == ((), True)
        assert [finding.check for finding in diagnosis.findings] == ["orphans-unknown"]


class TestStaged:
    def staged(self, stream: LocalUpserts) -> Committable:
        staged = stream.stage(changes({5: 5, 300: 3}))
        assert staged is not None
        return staged[0]

    def path(self, stream: LocalUpserts, checkpoint_id: int) -> Path:
        return Path(table_of(stream).locations.committable("job", checkpoint_id))

    def test_a_pending_checkpoint_is_told_and_its_files_are_kept(self, stream: LocalUpserts) -> None:
        self.staged(stream)
        diagnosis = diagnose(stream.location, orphan_age_ms=0)
        assert (diagnosis.violations, diagnosis.orphans) == ((), ())
        assert [(each.checkpoint_id, each.state) for each in diagnosis.staged] == [
            (2, "committed"),
            (3, "next"),
        ]
        assert [finding.check for finding in diagnosis.findings] == ["staged-pending"]

    def test_a_file_of_a_pending_checkpoint_is_missing(self, stream: LocalUpserts) -> None:
        before = {str(path) for path in Path(stream.location, "data").rglob("*.parquet")}
        self.staged(stream)
        new = min({str(path) for path in Path(stream.location, "data").rglob("*.parquet")} - before)
        Path(new).unlink()
        finding = only(stream.location, "file-missing")
        assert (finding.where, "staged file" in finding.what) == (new, True)

    def test_a_manifest_of_a_pending_checkpoint_is_missing_or_damaged(self, stream: LocalUpserts) -> None:
        manifest = Path(self.staged(stream).manifests[0].manifest_path)
        cut_short(manifest, 20)
        violations = found(stream.location)
        assert "staged-damaged" in violations
        assert set(violations) <= {"staged-damaged", "file-size"}
        manifest.unlink()
        assert only(stream.location, "file-missing").where == str(manifest)

    def test_a_damaged_one(self, stream: LocalUpserts) -> None:
        self.staged(stream)
        cut_short(self.path(stream, 3), 50)
        left_behind(Path(stream.location, "data", "orphan.parquet"))
        assert only(stream.location, "staged-damaged").where == str(self.path(stream, 3))
        assert diagnose(stream.location, orphan_age_ms=0).orphans == ()

    def test_a_stale_one(self, stream: LocalUpserts) -> None:
        old = self.path(stream, 2).read_bytes()
        stream.checkpoint(changes({700: 7}))
        self.path(stream, 2).write_bytes(old)
        diagnosis = diagnose(stream.location, orphan_age_ms=0)
        assert [(each.checkpoint_id, each.state) for each in diagnosis.staged] == [
            (2, "stale"),
            (3, "committed"),
        ]
        assert [finding.check for finding in diagnosis.findings] == ["staged-stale"]
        assert diagnosis.is_healthy

    def test_one_of_a_table_that_was_dropped(self, stream: LocalUpserts) -> None:
        committable = self.staged(stream)
        self.path(stream, 3).write_bytes(committable_to_bytes(replace(committable, table_uuid="other")))
        finding = only(stream.location, "staged-foreign", Severity.WARNING)
        assert finding.where == str(self.path(stream, 3))

    def test_one_whose_offsets_are_not_the_tables(self, stream: LocalUpserts) -> None:
        path = self.path(stream, 2)
        committable = committable_from_bytes(path.read_bytes(), str(path))
        other = replace(committable, identity=replace(committable.identity, end_offsets=("99",)))
        path.write_bytes(committable_to_bytes(other))
        assert only(stream.location, "staged-lineage").where == str(path)


class TestIndex:
    def test_a_run_is_missing_or_cut_short(self, stream: LocalUpserts) -> None:
        first, second, *_ = sorted(Path(stream.location).rglob("*.run"))
        first.unlink()
        finding = only(stream.location, "index-run", Severity.WARNING)
        assert finding.where == str(first)
        assert f"streamlake index rebuild {stream.location} --key id" in finding.fix
        cut_short(second)
        assert {each.where for each in found_all(stream.location)["index-run"]} == {str(first), str(second)}

    def test_a_state_is_damaged(self, stream: LocalUpserts) -> None:
        path = head(table_of(stream)).summary["streamlake.index-state"]
        cut_short(path)
        assert only(stream.location, "index-state", Severity.WARNING).where == path


class TestCheckpoint:
    @pytest.fixture
    def checkpoint(self, stream: LocalUpserts, tmp_path: Path) -> Path:
        """The directory of the stream as Spark leaves it when the third checkpoint is in the table only."""
        directory = tmp_path / "checkpoint"
        for log in ("offsets", "commits", "streamlake"):
            (directory / log).mkdir(parents=True)
        (directory / "metadata").write_text(json.dumps({"id": "job"}))
        for number in range(3):
            (directory / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{number}')
        for number in range(2):
            (directory / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        self.note(directory, stream, table_of(stream).uuid)
        return directory

    @staticmethod
    def note(directory: Path, stream: LocalUpserts, uuid: str) -> None:
        obj = {"table": stream.location, "branch": "main", "table-uuid": uuid, "committed": True}
        (directory / "streamlake" / "a.json").write_text(json.dumps(obj))

    def test_a_healthy_one(self, stream: LocalUpserts, checkpoint: Path) -> None:
        assert diagnose(stream.location, checkpoint=str(checkpoint)).findings == ()
        (checkpoint / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')
        (checkpoint / "offsets" / "3").write_text('v1\n{"batchWatermarkMs":0}\n3')
        assert diagnose(stream.location, checkpoint=str(checkpoint)).findings == ()

    @pytest.mark.parametrize("name", ["metadata", "offsets/1", "offsets/2", "commits/1", "streamlake/a.json"])
    def test_a_torn_file(self, name: str, stream: LocalUpserts, checkpoint: Path) -> None:
        path = checkpoint / name
        path.write_bytes(path.read_bytes()[:6])
        violations = found(stream.location, checkpoint)
        assert violations["checkpoint-torn"].where == str(path)
        # Without its note, a directory is known by the table.
        assert set(violations) == {"checkpoint-torn"}

    @pytest.mark.parametrize("name", ["offsets/2", "commits/1"])
    def test_a_log_of_another_version(self, name: str, stream: LocalUpserts, checkpoint: Path) -> None:
        """Spark can read it, so nobody is told to delete it."""
        path = checkpoint / name
        path.write_text(path.read_text().replace("v1", "v2", 1))
        violation = found(stream.location, checkpoint)["checkpoint-version"]
        assert violation.where == str(path)
        assert "delete nothing" in violation.fix
        with pytest.raises(FeatureUnsupportedError, match="version 'v2'"):
            require_tick(path.read_text(), str(path))

    def test_an_empty_file(self, stream: LocalUpserts, checkpoint: Path) -> None:
        (checkpoint / "commits" / "1").write_bytes(b"")
        assert set(found(stream.location, checkpoint)) == {"checkpoint-torn"}

    def test_it_is_older_than_the_table(self, stream: LocalUpserts, checkpoint: Path) -> None:
        (checkpoint / "offsets" / "2").unlink()
        violations = found(stream.location, checkpoint)
        assert list(violations) == ["lineage-checkpoint-older"]
        assert "streamlake recover" in violations["lineage-checkpoint-older"].fix

    def test_it_has_other_offsets(self, stream: LocalUpserts, checkpoint: Path) -> None:
        (checkpoint / "offsets" / "2").write_text('v1\n{"batchWatermarkMs":0}\n17')
        [check] = found(stream.location, checkpoint)
        assert check.startswith("lineage-")

    def test_it_has_written_another_table(self, stream: LocalUpserts, checkpoint: Path) -> None:
        self.note(checkpoint, stream, "another")
        assert list(found(stream.location, checkpoint)) == ["lineage-table-replaced"]

    def test_it_is_of_another_stream(self, stream: LocalUpserts, checkpoint: Path, tmp_path: Path) -> None:
        (checkpoint / "metadata").write_text(json.dumps({"id": "another job"}))
        (checkpoint / "streamlake" / "a.json").unlink()
        assert list(found(stream.location, checkpoint)) == ["checkpoint-table"]

    def test_the_table_was_rolled_back(self, stream: LocalUpserts, checkpoint: Path) -> None:
        table = table_of(stream)
        first = table.snapshots[0].snapshot_id

        def back(metadata: TableMetadata) -> TableMetadata:
            refs = {**metadata.refs, "main": replace(metadata.refs["main"], snapshot_id=first)}
            log = (*metadata.snapshot_log, SnapshotLogEntry(metadata.last_updated_ms, first))
            return replace(metadata, refs=refs, current_snapshot_id=first, snapshot_log=log)

        rewrite_metadata(table, back)
        violations = found_all_with(stream.location, checkpoint)
        assert set(violations) == {"lineage-rolled-back"}

    def test_the_logs_do_not_fit_together(self, stream: LocalUpserts, checkpoint: Path) -> None:
        (checkpoint / "commits" / "1").unlink()
        assert "checkpoint-logs" in found(stream.location, checkpoint)

    def test_temporary_files(self, stream: LocalUpserts, checkpoint: Path) -> None:
        left_behind(checkpoint / "offsets" / ".3.8a6f.tmp")
        assert list(found(stream.location, checkpoint)) == ["checkpoint-temporary"]

    def test_there_is_none(self, stream: LocalUpserts, tmp_path: Path) -> None:
        with pytest.raises(InvalidOptionError, match="checkpoint"):
            diagnose(stream.location, checkpoint=str(tmp_path / "none"))


def found_all_with(location: str, checkpoint: Path) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in diagnose(location, checkpoint=str(checkpoint)).violations:
        found.setdefault(finding.check, []).append(finding)
    return found


def test_a_table_that_moves_on_is_looked_at_again(
    stream: LocalUpserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between planning and listing, a file that only an expired snapshot needs goes away."""
    table = table_of(stream)
    gone = a_data_file(table)
    looks = []

    def on_progress(what: str, done: int, total: int | None) -> None:
        if what == "key index" and not looks:
            looks.append(what)

            def without(metadata: TableMetadata) -> TableMetadata:
                return replace(metadata, refs={}, snapshots=(), snapshot_log=(), current_snapshot_id=None)

            rewrite_metadata(table, without)
            Path(gone).unlink()

    diagnosis: Diagnosis = diagnose(stream.location, on_progress=on_progress)
    assert looks
    assert "file-missing" not in {finding.check for finding in diagnosis.violations}


def test_many_findings_of_a_kind_are_counted() -> None:
    findings = Findings(shown=3)
    for number in range(10):
        findings.error("file-missing", f"file {number}", "is gone", "restore it")
    findings.note("staged-pending", "x", "y")
    assert [finding.where for finding in findings.all()] == ["file 0", "file 1", "file 2", "x", "and others"]
    assert findings.all()[-1].what == "7 more of this kind"


def test_our_own_tables_pass_both_checks(stream: LocalUpserts) -> None:
    check_table(table_of(stream), files_exist=True)
    assert diagnose(stream.location).is_healthy
