"""Inverse tests: each guard against losing or doubling rows has a check that passes with it and fails without it.

The numbers are those of the traps in docs/internals/guards.md. A guard is taken out by replacing one named function for the
length of a test; nothing in the product can do that.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamlake import clock, ids, load_table
from streamlake.catalog.open import create, open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.store import CommittableStore
from streamlake.commit import committer, history
from streamlake.commit.committer import Committer
from streamlake.commit.history import History
from streamlake.commit.lineage import Finding
from streamlake.commit.marker import Fence
from streamlake.commit.receipt import CommitReceipt
from streamlake.decode.cdc.source_tables import SourceTables, TableCheck
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataInvalidError,
    DataLossError,
    DecodeError,
    FencedError,
    InvalidOptionError,
    LineageError,
    StreamlakeError,
)
from streamlake.formats.arrow import exact_decimals
from streamlake.formats.arrow.missing_fields import missing_fields_column
from streamlake.index.runs import lookup
from streamlake.maintain import reachable_files
from streamlake.operate.doctor.diagnosis import diagnose
from streamlake.pipeline.key_index.resolution import Resolver
from streamlake.pipeline.runs import commit_queue, micro_batch, sink_run, source_notes, upsert_run
from streamlake.pipeline.runs.lineage import lineage_check
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.pipeline.spark import query_identity
from streamlake.records import MISSING_FIELDS, ROW_SEQUENCE
from streamlake.source import consumers, fetcher, source_options
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.source.planner import OffsetPlanner
from streamlake.source.topic_now import TopicNow
from streamlake.spec.metadata.snapshot import SnapshotRef
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.producers import delete_rules, snapshot_producer
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.producers.row_delta import RowDelta
from streamlake.table.producers.snapshot_producer import SnapshotProducer
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import with_ref
from streamlake.table.updates.metadata_update import commit_metadata
from streamlake.tasks.direct_reader import row_decoder
from streamlake.write.deletes import merged_deletes
from streamlake.write.deletes.source_rows import SourceRows
from streamlake.write.rows.conversion import NotConvertibleError, converted
from streamlake.write.target import output_files
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from tests.helpers import foreign_writers, local_stream
from tests.helpers.fake_cluster import FakeCluster
from tests.helpers.invariants import check_table, live_entries
from tests.helpers.local_rejects import RejectingStream, rejected_rows_of
from tests.helpers.local_routing import RoutedStream
from tests.helpers.local_stream import LocalStream, Record
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import FaultyOperations, data_file, delete_file, make_table
from tests.unit.decode.raw_records import raw_batch

SOURCE: list[Record] = [(number, f"v{number}") for number in range(10)]
Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Guard:
    """`trap` and what guards against it; `remove` takes the guard out, `check` fails when it is out."""

    trap: str
    name: str
    remove: Callable[[Patch], None]
    check: Callable[[Path], None]


def finishes(stream: LocalStream, rows: list[Record] = SOURCE) -> None:
    """The stream runs on to its end, and every row is there once."""
    stream.start()
    assert stream.rows() == rows
    check_table(open_table(stream.location), files_exist=True)


def is_refused(stream: LocalStream, error: type[Exception] = LineageError) -> None:
    before = stream.rows()
    try:
        stream.start()
    except error:
        assert stream.rows() == before
        return
    raise AssertionError("it went on, and nobody was told")


def swapped(home: Path, **options: Any) -> LocalStream:
    """A stream whose driver died when checkpoint 1 was in the table, and Spark did not know yet."""
    stream = LocalStream(home, list(SOURCE), **options).start(2)
    (stream.path / "commits" / "1").unlink()
    return stream


def staged(home: Path, **options: Any) -> LocalStream:
    """A stream whose driver died when checkpoint 1 was staged."""
    stream = LocalStream(home, list(SOURCE), **options).start(1)
    with Patch.context() as patch:
        patch.setattr(SinkRun, "commit", died)
        with pytest.raises(KeyboardInterrupt):
            stream.start(1)
    return stream


def died(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def unknown(*_: Any) -> None:
    raise CommitStateUnknownError("the answer was lost")


def change(home: Path, function: Callable[[Any], Any]) -> None:
    commit_metadata(open_table(str(home / "table")), function)


def append_other(home: Path, record: Record = (99, "other")) -> None:
    other = LocalStream(home, [record], pipeline="other", directory="other", location=str(home / "table"))
    other.start()


def expire_all_but_the_head(home: Path) -> None:
    change(
        home,
        lambda base: base if len(base.snapshots) == 1 else replace(base, snapshots=base.snapshots[-1:]),
    )


# T1, T2, T3: who is it, and is it the one that wrote the table?


def check_restart_under_the_same_job_id(home: Path) -> None:
    """The identity is read as in a query, where Spark offers an id that it persists and one of the run."""

    class Query(LocalStream):
        def identity(self, checkpoint_id: int) -> CheckpointIdentity:
            local = {"sql.streaming.queryId": self.directory.job_id, "sql.streaming.runId": self.run_id}
            log = SimpleNamespace(
                get=lambda at: _Entry(self.directory.end_offsets(at) if at >= 0 else None),
                metadataPath=lambda: SimpleNamespace(
                    getParent=lambda: SimpleNamespace(toString=lambda: str(self.path))
                ),
            )
            context = SimpleNamespace(getLocalProperty=local.get)
            frame: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
            with Patch.context() as patch:
                execution = SimpleNamespace(offsetLog=lambda: log)
                patch.setattr(query_identity, "stream_execution", lambda *_: execution)
                found = query_identity.checkpoint_identity(frame, checkpoint_id)
                return replace(found, pipeline=f"{self.location}:{found.job_id}")

        def start(self, checkpoints: int = 10**9) -> LocalStream:
            self.run_id = ids.new_uuid()
            return super().start(checkpoints)

    stream = Query(home, list(SOURCE), pipeline=None)
    stream.start(2)
    (stream.path / "commits" / "1").unlink()
    shutil.rmtree(stream.path / "streamlake")
    finishes(stream)


class _Entry:
    """An entry of Spark's offset log, as seen through Py4J."""

    def __init__(self, offsets: tuple[str, ...] | None) -> None:
        self._offsets = offsets

    def isDefined(self) -> bool:
        return self._offsets is not None

    def get(self) -> Any:
        offsets = self._offsets or ()
        texts = [SimpleNamespace(json=lambda text=text: text) for text in offsets]
        entries = [SimpleNamespace(isDefined=lambda: True, get=lambda text=text: text) for text in texts]
        sequence = SimpleNamespace(size=lambda: len(entries), apply=lambda at: entries[at])
        return SimpleNamespace(offsets=lambda: sequence)


def check_lost_directory(home: Path) -> None:
    stream = LocalStream(home, list(SOURCE)).start(3)
    shutil.rmtree(stream.path)
    is_refused(stream)


def check_older_directory(home: Path) -> None:
    stream = LocalStream(home, list(SOURCE)).start(2)
    old = stream.copied("old")
    stream.start(2)
    old.step = 3
    is_refused(old)


def without_offsets(patch: Patch) -> None:
    patch.setattr(CheckpointIdentity, "offsets_digest", "same")
    for module in (committer, lineage_check):
        patch.setattr(module, "offsets_digest", lambda _: "same")


# T4, T15, T16, T17: where is the marker looked for?


def check_expired_snapshot(home: Path) -> None:
    stream = swapped(home)
    append_other(home)
    expire_all_but_the_head(home)
    finishes(stream, [*SOURCE, (99, "other")])


def check_hidden_marker(home: Path) -> None:
    stream = swapped(home)
    append_other(home)
    finishes(stream, [*SOURCE, (99, "other")])


def check_branch(home: Path) -> None:
    LocalStream(
        home, [(99, "main")], pipeline="other", directory="other", location=str(home / "table")
    ).start()
    stream = swapped(home, branch="audit")
    finishes(stream, [*SOURCE, (99, "main")])


def check_rolled_back(home: Path) -> None:
    stream = LocalStream(home, list(SOURCE)).start(3)
    first = open_table(stream.location).snapshots[0].snapshot_id
    change(home, lambda base: with_ref(base, "main", SnapshotRef(first, "branch")))
    is_refused(stream)


def only_the_latest_snapshot(patch: Patch) -> None:
    def head_only(metadata: Any, branch: str) -> Any:
        head = metadata.head(branch)
        return iter(() if head is None else (head,))

    patch.setattr(history, "_ancestry", head_only)
    patch.setattr(history, "parsed_property", lambda *_: None)
    patch.setattr(history, "properties_of_job", lambda *_: [])


def always_main(patch: Patch) -> None:
    of = History.of
    patch.setattr(History, "of", staticmethod(lambda base, branch, *who: of(base, "main", *who)))


# T5, T9, T10, T11, T19: one commit per checkpoint, of its own files


def _upserts(home: Path, **options: Any) -> LocalUpserts:
    version = options.pop("version", 2)
    make_table(home / "table", "id long, part string, v string", options.pop("partition_by", ()), version)
    return LocalUpserts(str(home / "table"), key=options.pop("key", ["id"]), **options)


def _changes(*rows: tuple[int, str, str]) -> pa.Table:
    ids_, parts, values = zip(*rows, strict=True)
    return pa.table({"id": pa.array(ids_, pa.int64()), "part": parts, "v": values})


def _live(upserts: LocalUpserts) -> list[tuple[int, str]]:
    from streamlake import load_table

    found = load_table(upserts.location).scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def check_two_pending_checkpoints(home: Path) -> None:
    """Two checkpoints that a crash left behind both change a key, by equality deletes."""
    upserts = _upserts(home, delete_mode="equality")
    upserts.stage(_changes((1, "a", "old"), (2, "a", "kept")))
    upserts.stage(_changes((1, "a", "new")))
    upserts.restart()
    upserts.recover()
    assert _live(upserts) == [(1, "new"), (2, "kept")]


def all_in_one_commit(patch: Patch) -> None:
    pending, files = CommittableStore.pending, Committer.files
    holder: dict[str, str] = {}

    def merged(store: CommittableStore) -> list[Any]:
        found = pending(store)
        manifests = tuple(manifest for each in found for manifest in each.manifests)
        return [replace(found[-1], manifests=manifests)] if found else []

    def located(committing: Committer, committable: Any) -> Any:
        for manifest in committable.manifests:
            for file in files(committing, replace(committable, manifests=(manifest,))):
                holder[file.file_path] = manifest.manifest_path
        return files(committing, committable)

    patch.setattr(CommittableStore, "pending", merged)
    patch.setattr(Committer, "files", located)
    patch.setattr(
        committer, "_is_of", lambda manifest, file: holder[file.file_path] == manifest.manifest_path
    )


def check_staged_successor(home: Path) -> None:
    """Checkpoint 1 is staged while 0 is being committed; then the driver dies."""
    upserts = _upserts(home)
    first = upserts.stage(_changes((1, "a", "first")))
    upserts.stage(_changes((2, "a", "second")))
    assert first is not None
    upserts.run.commit(first[0])
    upserts.run.forget_before(first[0].identity)
    upserts.restart()
    upserts.recover()
    assert _live(upserts) == [(1, "first"), (2, "second")]


def forget_all_staged(patch: Patch) -> None:
    def forget(run: SinkRun, identity: CheckpointIdentity) -> None:
        for committable in run.store.pending():
            run.store.remove(committable.identity)

    patch.setattr(SinkRun, "forget_before", forget)


def check_staged_and_gone(home: Path) -> None:
    """Spark takes two staged checkpoints for done; then somebody deletes the file of the second one."""
    LocalStream(home, SOURCE).start(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(micro_batch, "_commit", _fails)
        patch.setattr(commit_queue.CommitQueue, "_check", lambda queue: None)
        LocalStream(home, SOURCE, ahead=3).start(2).finish()
    stream = LocalStream(home, SOURCE)
    table = open_table(stream.location)
    store = CommittableStore(table.io, table.locations, stream.directory.job_id)
    store.remove(stream.identity(2))
    assert [each.kind.value for each in _findings(stream)] == ["table-older"]
    with pytest.raises(LineageError, match="what was staged is gone"):
        stream.start()


def _fails(*_: object) -> None:
    raise CommitConflictError("the driver dies")


def _findings(stream: LocalStream) -> tuple[Finding, ...]:
    directory = stream.directory
    noted = directory.note(stream.location, stream.branch)
    return lineage_check.lineage_findings(open_table(stream.location), "main", "p", directory, noted)


def nobody_misses_it(patch: Patch) -> None:
    patch.setattr(lineage_check, "lost_staged", lambda *_: None)


def check_slow_attempt(home: Path) -> None:
    """A second attempt of a task begins, and is killed when the first one's result is in."""
    table = make_table(home / "table")
    target = WriteTarget.for_table(
        table.metadata, io=table.io, job_id="j", checkpoint_id=0, operation_uuid=ids.new_uuid()
    )
    winner, loser = (OutputFiles(target, 0, 0, attempt) for attempt in (0, 1))
    path = winner.new_path(())
    table.io.write_bytes(path, b"rows")
    loser.new_path(())
    loser.delete_all()
    assert table.io.exists(path)


def one_name_for_all_attempts(patch: Patch) -> None:
    patch.setattr(output_files.uuid, "uuid5", lambda *_: "the-task")


def check_replay_with_other_rows(home: Path) -> None:
    """The function of the stream calls rand(), so Spark's replay of a checkpoint has other rows."""
    stream = swapped(home)
    stream.source[2:4] = [(number, "other") for number in (2, 3)]
    finishes(stream)


def no_look_before_writing(patch: Patch) -> None:
    patch.setattr(Committer, "receipt_if_committed", lambda *_: None)
    patch.setattr(Committer, "_check", lambda *_: None)


def check_replanned_checkpoint(home: Path) -> None:
    """The directory was rewound under a staged checkpoint, and Spark plans it anew with other offsets."""
    stream = staged(home)
    (stream.path / "offsets" / "1").unlink()
    stream.step = 3
    finishes(stream)


# T6: the answer of the swap is lost


def check_lost_answer(home: Path) -> None:
    stream = LocalStream(home, list(SOURCE)).start(1)
    stream.plan()
    run = stream._opened(stream.identity(1))
    table = run.table
    lossy = Table(table.name, FaultyOperations(table.operations, after_swap=unknown))
    run.committer = Committer(lossy, "main")
    stream._run = run
    stream.go_on(1)
    assert len(open_table(stream.location).snapshots) == 2
    finishes(stream)


def take_it_for_a_failure(patch: Patch) -> None:
    def resolve(producer: SnapshotProducer, error: CommitStateUnknownError) -> Any:
        producer._clean_up(committed=None)
        raise CommitConflictError("not committed, it seems") from error

    patch.setattr(snapshot_producer.SnapshotProducer, "_resolve", resolve)


# T7: two drivers


def zombie(home: Path) -> tuple[LocalStream, LocalStream]:
    """A driver that stands still, and its successor on a copy of the directory, which has committed one checkpoint more."""
    first = LocalStream(home, list(SOURCE)).start(1)
    successor = first.copied("copy").start(1)
    return first, successor


def check_zombie_is_told(home: Path) -> None:
    first, successor = zombie(home)
    try:
        first.go_on(1)
    except FencedError:
        finishes(successor)
        return
    raise AssertionError("the zombie goes on")


def check_zombie_in_the_swap(home: Path) -> None:
    """The zombie wakes up when its checkpoint is staged, and its successor is two further."""
    stream = LocalStream(home, list(SOURCE)).start(1)
    successors = [stream.copied("copy")]
    commit = SinkRun.commit

    def late(run: SinkRun, *arguments: Any, **keywords: Any) -> CommitReceipt:
        if successors:
            successors.pop().start(3)
        return commit(run, *arguments, **keywords)

    with Patch.context() as patch:
        patch.setattr(SinkRun, "commit", late)
        with pytest.raises(FencedError):
            stream.start(1)
    copy = LocalStream(home, list(SOURCE), directory="copy")
    finishes(copy)


def check_zombie_while_it_resolves(home: Path) -> None:
    """The zombie stands still where it has found new positions for what it had staged, which its successor commits."""
    upserts = _upserts(home, version=3)
    upserts.checkpoint(_changes(*((at, "a", "old") for at in range(6))))
    found = upserts.stage(_changes((1, "a", "new")))
    assert found is not None
    committable, results = found
    foreign_writers.append_rows(upserts.location, _changes((50, "b", "other")))
    tied = UpsertRun._tied

    def overtaken(run: UpsertRun, *arguments: Any) -> Any:
        successor = LocalUpserts(upserts.location, key=["id"])
        with Patch.context() as patch:
            patch.setattr(UpsertRun, "_tied", tied)
            patch.setattr(UpsertRun, "_resolved_again", as_it_was_staged)
            successor.run.committer.commit(replace(committable, base_snapshot_id=head()))
        return tied(run, *arguments)

    def as_it_was_staged(run: UpsertRun, staged: Any) -> Any:
        return replace(staged, base_snapshot_id=head()), None

    def head() -> int | None:
        return open_table(upserts.location).metadata.current_snapshot_id

    with Patch.context() as patch:
        patch.setattr(UpsertRun, "_tied", overtaken)
        with pytest.raises(FencedError):
            upserts.run.commit(committable, results)
    check_table(open_table(upserts.location), files_exist=True)
    assert _live(upserts) == [(0, "old"), (1, "new"), *((at, "old") for at in range(2, 6)), (50, "other")]


def delete_at_once(patch: Patch) -> None:
    patch.setattr(UpsertRun, "_supersede", lambda run, paths: run.discard(paths))


# T8, T12, T13, T14: files


def check_pending_files_are_no_orphans(home: Path) -> None:
    stream = staged(home)
    pending = {each.manifest_path for each in _staged_manifests(stream)}
    orphans = {orphan.path for orphan in diagnose(stream.location, orphan_age_ms=-1).orphans}
    assert pending
    assert not pending & orphans
    data = {str(path) for path in Path(stream.location, "data").rglob("*.parquet")}
    assert not data & orphans


def _staged_manifests(stream: LocalStream) -> list[Any]:
    table = open_table(stream.location)
    found = CommittableStore(table.io, table.locations, stream.directory.job_id).pending()
    return [manifest for each in found for manifest in each.manifests if each.identity.checkpoint_id == 1]


def nothing_is_pending(patch: Patch) -> None:
    need = reachable_files.ReachableFiles.need

    def forgetful(files: Any, path: str, size: Any, kind: str, by: str, **more: Any) -> None:
        if "staged" not in by and "checkpoint" not in by and "staged" not in kind:
            need(files, path, size, kind, by, **more)

    patch.setattr(reachable_files.ReachableFiles, "need", forgetful)


def check_two_deletion_vectors(home: Path) -> None:
    table = make_table(home / "table", format_version=3)
    file = data_file(table)
    AppendFiles(table).append_file(file).commit()
    delta = RowDelta(table).require_head(table.metadata.current_snapshot_id)
    delta.validate_data_files_exist([file.file_path])
    for at in (4, 40):
        delta.add_deletes(delete_file(table, file, f"d{at}", offset=at))
    try:
        delta.commit()
    except DataInvalidError:
        return
    check_table(open_table(table.location))


def no_self_check(patch: Patch) -> None:
    patch.setattr(delete_rules.NewDeletes, "check", lambda *_: None)
    patch.setattr(RowDelta, "verify", lambda *_: None)


def check_row_that_moves(home: Path) -> None:
    """A row of another partition than the new one is deleted where it was."""
    upserts = _upserts(home, version=3, partition_by=("part",))
    upserts.checkpoint(_changes((1, "a", "old"), (2, "a", "kept"), (3, "b", "kept")))
    upserts.checkpoint(_changes((1, "b", "new")))
    assert _live(upserts) == [(1, "new"), (2, "kept"), (3, "kept")]
    check_table(open_table(upserts.location), files_exist=True)


def partition_of_the_new_row(patch: Patch) -> None:
    deleted = merged_deletes.DeletedFile
    patch.setattr(
        merged_deletes, "DeletedFile", lambda path, spec_id, partition: deleted(path, spec_id, ("b",))
    )
    patch.setattr(delete_rules.NewDeletes, "_require_same_place", lambda *_: None)


def check_compaction_meanwhile(home: Path) -> None:
    """Another writer compacts the file in which a staged checkpoint deletes."""
    upserts = _upserts(home, version=3)
    upserts.checkpoint(_changes((1, "a", "old"), (2, "a", "kept")))
    upserts.checkpoint(
        _changes((1, "a", "new")),
        between=lambda _: foreign_writers.compact(upserts.location, lambda at: True),
    )
    assert _live(upserts) == [(1, "new"), (2, "kept")]
    check_table(open_table(upserts.location), files_exist=True)


def onto_any_head(patch: Patch) -> None:
    patch.setattr(RowDelta, "require_head", lambda delta, snapshot_id: delta)
    patch.setattr(RowDelta, "validate", lambda *_: None)
    patch.setattr(delete_rules.NewDeletes, "check", lambda *_: None)
    patch.setattr(RowDelta, "verify", lambda *_: None)


# T21: the checkpoint directory is used for another table


def check_other_table(home: Path) -> None:
    """Somebody changes the table of a stream, and changes it back."""
    stream = LocalStream(home, list(SOURCE)).start(2)
    other = LocalStream(home, stream.source, location=str(home / "other"))
    create(other.location, parse_ddl(local_stream.DDL))
    with contextlib.suppress(LineageError):
        other.start(1)
    finishes(stream)


def check_restored_table(home: Path) -> None:
    """One of many tables is put back to a copy, and has no row in the next checkpoints."""
    with Patch.context() as patch:
        home.mkdir(exist_ok=True)
        stream = RoutedStream(home, patch, "id long not null, c string")
        stream.take({"id": 1, "c": "a"}, {"id": 1, "c": "b"})
        shutil.copytree(home / "e_b", home / "copy")
        stream.take({"id": 2, "c": "b"})
        shutil.rmtree(home / "e_b")
        shutil.copytree(home / "copy", home / "e_b")
        stream.restart()
        with pytest.raises(LineageError, match="checkpoint 1"):
            stream.take({"id": 3, "c": "a"})


# T18, T20


class _AllNames(tuple[str, ...]):
    def __contains__(self, name: object) -> bool:
        return True


def check_unknown_option(_: Path) -> None:
    with pytest.raises(InvalidOptionError, match="did you mean 'starting-offsets'"):
        KafkaSource("b:1", topics=["t"], options={"starting-ofsets": "latest"})


def check_back_pressure(_: Path) -> None:
    """Commits stand still, and at most two checkpoints wait for them."""
    gate = threading.Event()
    queue = commit_queue.CommitQueue(2, lambda receipt: None)
    most = []

    def work() -> Any:
        gate.wait(5)

    def write() -> None:
        for _ in range(4):
            queue.put(work)

    writer = threading.Thread(target=write)
    writer.start()
    writer.join(0.3)
    most.append(queue.pending)
    gate.set()
    writer.join(5)
    queue.drain()
    assert max(most) <= 2


def without_limit(patch: Patch) -> None:
    init = commit_queue.CommitQueue.__init__
    patch.setattr(
        commit_queue.CommitQueue, "__init__", lambda queue, limit, deliver: init(queue, 1000, deliver)
    )


# T22: another writer rewrites files


def check_places_of_rewritten_rows(home: Path) -> None:
    """Another writer compacts the table, and a change comes again that the stream has overwritten before."""
    upserts = _upserts(home, version=3, sequence_by=[ROW_SEQUENCE])

    def placed(*places: int) -> pa.Table:
        rows = _changes(*((number, "a", f"at {place}") for number, place in enumerate(places)))
        return rows.append_column(ROW_SEQUENCE, pa.array(places, pa.int64()))

    upserts.checkpoint(placed(100, 90))
    foreign_writers.compact(upserts.location, lambda at: True)
    upserts.checkpoint(placed(50, 95))
    assert _live(upserts) == [(0, "at 100"), (1, "at 95")]


def rows_of_live_files_alone(patch: Patch) -> None:
    counted = lookup._with_sequence_values
    patch.setattr(lookup, "_with_sequence_values", lambda flags, lives: lives & counted(flags, lives))


# T23, T24: others commit between staging and commit


def _versions(*rows: tuple[int, int, str]) -> pa.Table:
    """Changes (id, ver, v)."""
    return pa.table({name: [row[at] for row in rows] for at, name in enumerate(("id", "ver", "v"))})


def check_newer_row_meanwhile(home: Path) -> None:
    """Another pipeline commits a newer change of a key than the one that is staged."""
    home.mkdir(exist_ok=True)
    make_table(home / "table", "id long not null, ver long, v string", format_version=3)
    location = str(home / "table")
    ours, other = (
        LocalUpserts(location, key=["id"], sequence_by=["ver"], pipeline=name, job_id=name, tasks=1)
        for name in ("ours", "other")
    )
    ours.checkpoint(_versions((1, 1, "first")))
    ours.checkpoint(_versions((1, 5, "older")), lambda _: other.checkpoint(_versions((1, 10, "newer"))))
    assert _live(ours) == [(1, "newer")]


def _partial(home: Path) -> LocalUpserts:
    home.mkdir(exist_ok=True)
    properties = {"streamlake.upsert.unset-values": "null"}
    make_table(home / "table", "number long not null, v string", format_version=3, properties=properties)
    upserts = LocalUpserts(str(home / "table"), key=["number"], tasks=1)
    upserts.checkpoint(pa.table({"number": [1, 2], "v": ["old", "other"]}))
    return upserts


def _first_value(upserts: LocalUpserts) -> list[str | None]:
    found: list[str | None] = load_table(upserts.location).scan("number = 1").to_arrow()["v"].to_pylist()
    return found


def _left_out() -> pa.Table:
    """A change that leaves `v` out."""
    table = pa.table({"number": [1], "v": pa.nulls(1, pa.string())})
    return table.append_column(MISSING_FIELDS, missing_fields_column({"v": np.array([True])}, 1))


def check_deleted_row_is_no_source(home: Path) -> None:
    upserts = _partial(home)
    foreign_writers.delete_rows(upserts.location, [1])
    upserts.checkpoint(_left_out())
    assert _first_value(upserts) == [None]


def check_lost_update(home: Path) -> None:
    """Another pipeline sets a column that a staged change leaves out."""
    upserts = _partial(home)
    other = LocalUpserts(upserts.location, key=["number"], pipeline="other", job_id="other", tasks=1)
    upserts.checkpoint(
        _left_out(), lambda _: other.checkpoint(pa.table({"number": [1], "v": ["set meanwhile"]}))
    )
    assert _first_value(upserts) == ["set meanwhile"]


# T25: what changes under a staged checkpoint


def check_staged_files_are_there(home: Path) -> None:
    """Somebody's orphan removal takes a data file of a staged checkpoint."""
    stream = staged(home)
    table = open_table(stream.location)
    known = {entry.data_file.file_path for entry in live_entries(table)}
    for path in sorted(Path(home, "table", "data").rglob("*.parquet")):
        if str(path) not in known:
            path.unlink()
    finishes(stream)


def check_upgrade_under_a_staged_checkpoint(home: Path) -> None:
    records = [(number % 3, f"v{number}") for number in range(10)]
    make_table(home / "table", "id long, v string", (), 2)
    stream = LocalStream(home, records, mode="upsert").start(2)
    with Patch.context() as patch:
        patch.setattr(UpsertRun, "commit", died)
        with pytest.raises(KeyboardInterrupt):
            stream.start(1)
    foreign_writers.upgrade(stream.location)
    finishes(stream, [(0, "v9"), (1, "v7"), (2, "v8")])


# T26: a topic is deleted and made anew


def check_replay_of_a_topic_made_anew(_: Path) -> None:
    """A checkpoint is logged, the topic is made anew, and the checkpoint is read again."""
    logged = [SourceOffsets({("t", 0): end}, {}, {"t": "old"}) for end in (5, 9)]
    planner = OffsetPlanner(KafkaSource("b:1", topics=["t"]), FakeCluster({("t", 0): (0, 20)}, {"t": "new"}))
    with pytest.raises(DataLossError, match="created again"):
        planner.ranges(*logged)


class Consumer:
    """Of a topic that has the id `topic_id` by now; fetches nothing."""

    def __init__(self, topic_id: str) -> None:
        self.topic_id = topic_id
        self.closed = False

    def now(self, _: Any, partition: Any) -> TopicNow:
        return TopicNow(self.topic_id, frozenset({partition.partition}))

    def close(self, **_: Any) -> None:
        self.closed = True


def check_buffer_of_a_topic_made_anew(_: Path) -> None:
    """A consumer that has fetched ahead is kept, and asked for the topic of the same name."""
    kept: Any = consumers._Kept((0, ""), clock.monotonic(), Consumer("old"), {"t": "old"})
    consumers._give_back(kept)
    try:
        assert consumers._take((0, ""), OffsetRange("t", 0, 5, 9, "new")) is None
        assert kept.consumer.closed
    finally:
        consumers.close_idle_consumers()


def check_topic_made_anew_while_it_is_read(_: Path) -> None:
    """Everything of the range was fetched, and the topic is another one."""
    consumer: Any = Consumer("new")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetcher, "topic_now", consumer.now)
        patch.setattr(fetcher, "_seek", lambda *_: None)
        piece = OffsetRange("t", 0, 9, 9, "old")
        source = KafkaSource("b:1", topics=["t"])
        with pytest.raises(DataLossError, match="created again"):
            list(fetcher._poll_blocks(source, consumer, piece, lambda: False))


# T27: several sources in one table


def _of_source(home: Path, topic: str, *events: tuple[str, str, int, int | None]) -> Any:
    """What the table below `home` is given of events (operation, table, place in the log, id) of a topic."""
    table = open_table(str(home / "table"))
    raw = [
        {
            "value": {
                "op": op,
                "before": {"id": id} if op == "d" else None,
                "after": None if op in "dt" else {"id": id, "part": "a", "v": name},
                "source": {"connector": "postgresql", "db": "shop", "table": name, "lsn": lsn},
            }
        }
        for op, name, lsn, id in events
    ]
    source = KafkaSource(
        "b:1", topic_pattern=".*", format="debezium-json", schema="id long, part string, v string"
    )
    decoder = row_decoder(source, ["id"], topic=topic, sources=source_notes.sources_of(table))
    return decoder.decode(raw_batch(raw, topic=topic))


def _of_two_sources(home: Path) -> LocalUpserts:
    """A table with a row of each of two databases."""
    upserts = _upserts(home, sequence_by=[ROW_SEQUENCE])
    source_notes.keep_sources(upserts.table, {"one": "shop.one", "two": "shop.two"})
    for topic, lsn, id in (("one", 10, 1), ("two", 500, 2)):
        rows = _of_source(home, topic, ("c", topic, lsn, id)).rows
        upserts.checkpoint(pa.Table.from_batches([rows]))
    return upserts


def check_truncate_of_another_source(home: Path) -> None:
    """One database truncates its table at a place that is above all of the other's."""
    upserts = _of_two_sources(home)
    try:
        decoded = _of_source(home, "one", ("t", "one", 1000, None))
    except DecodeError:
        decoded = None
    if decoded is not None:
        marks = [(truncate.sequence, 0) for truncate in decoded.truncates]
        upserts.checkpoint(pa.Table.from_batches([decoded.rows]), truncates=marks)
    assert _live(upserts) == [(1, "one"), (2, "two")]


def check_change_of_another_table(home: Path) -> None:
    """The topic of one table has a delete of another one's row."""
    upserts = _of_two_sources(home)
    try:
        decoded = _of_source(home, "two", ("d", "other", 600, 2))
    except DecodeError:
        decoded = None
    if decoded is not None:
        upserts.checkpoint(pa.Table.from_batches([decoded.rows]))
    assert _live(upserts) == [(1, "one"), (2, "two")]


def check_source_beside_a_truncated_one(home: Path) -> None:
    """One database has truncated its table, and places of another one that joins are below that."""
    upserts = _upserts(home, sequence_by=[ROW_SEQUENCE])
    source_notes.keep_sources(upserts.table, {"one": "shop.one"})
    rows = _of_source(home, "one", ("c", "one", 1001, 1)).rows
    upserts.checkpoint(pa.Table.from_batches([rows]), truncates=[(1000, 0)])
    upserts.run.target(upserts._identity)
    try:
        upserts.run.keep_sources({"two": "shop.two"})
    except InvalidOptionError:
        return
    rows = _of_source(home, "two", ("c", "two", 500, 2)).rows
    upserts.checkpoint(pa.Table.from_batches([rows]))
    assert _live(upserts) == [(1, "one"), (2, "two")]


# T28


def check_a_decimal_of_more_digits(home: Path) -> None:
    """A number that has no room before the point of its column's decimals is refused, and the others are stored as they are."""
    schema = parse_ddl("d decimal(38,30)")
    column = schema.fields[0].type
    stored = converted(pa.array([7, None, -99_999_999]), column, "d")
    assert stored.to_pylist() == [7, None, -99_999_999]
    for array in (pa.array([7, 10**18]), pa.array([7, 340_282_367], pa.decimal128(38, 0))):
        with pytest.raises(NotConvertibleError, match="digits before the point"):
            converted(array, column, "d")


# T29: nothing but rejects.


def check_rejects_alone(home: Path) -> None:
    home.mkdir(exist_ok=True)
    make_table(home / "table", "id long, v string")
    stream = RejectingStream(
        home / "table", [['{"id": 1}'], ["no JSON"]], "id long, v string", mode="overwrite"
    )
    for number in range(2):
        stream.checkpoint(number)
    assert load_table(str(home / "table")).scan().count() == 1
    assert [row["offset"] for row in rejected_rows_of(home / "table")] == [1]


def setting(target: Any, name: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(target, name, value)


GUARDS = [
    Guard(
        "T1",
        "the job id is the one that Spark persists",
        setting(query_identity, "_QUERY_ID", "sql.streaming.runId"),
        check_restart_under_the_same_job_id,
    ),
    Guard(
        "T2",
        "a pipeline of another job is refused",
        setting(History, "_other_job", lambda *_: None),
        check_lost_directory,
    ),
    Guard(
        "T3",
        "a checkpoint is told by its offsets too",
        without_offsets,
        check_older_directory,
    ),
    Guard(
        "T4",
        "a table property outlives the snapshot",
        setting(committer, "marker_property", lambda *_: {}),
        check_expired_snapshot,
    ),
    Guard("T5", "one commit per checkpoint", all_in_one_commit, check_two_pending_checkpoints),
    Guard("T6", "an unknown outcome is read from the table", take_it_for_a_failure, check_lost_answer),
    Guard("T7", "a driver has a fence", setting(Fence, "is_behind", lambda *_: False), check_zombie_is_told),
    Guard(
        "T7",
        "the swap checks what it is based on",
        setting(Committer, "_check", lambda *_: None),
        check_zombie_in_the_swap,
    ),
    Guard("T7", "files are deleted after the commit", delete_at_once, check_zombie_while_it_resolves),
    Guard("T8", "staged files are no orphans", nothing_is_pending, check_pending_files_are_no_orphans),
    Guard(
        "T9", "what is staged stays until its successor commits", forget_all_staged, check_staged_successor
    ),
    Guard("T9", "what is staged and gone is missed", nobody_misses_it, check_staged_and_gone),
    Guard("T10", "attempts name their files apart", one_name_for_all_attempts, check_slow_attempt),
    Guard("T11", "committed wins", no_look_before_writing, check_replay_with_other_rows),
    Guard(
        "T12",
        "one deletion vector per file",
        no_self_check,
        check_two_deletion_vectors,
    ),
    Guard("T13", "deletes are where their data file is", partition_of_the_new_row, check_row_that_moves),
    Guard("T14", "deletes by position need their head", onto_any_head, check_compaction_meanwhile),
    Guard("T15", "the whole ancestry and the property", only_the_latest_snapshot, check_hidden_marker),
    Guard("T16", "the branch that is written", always_main, check_branch),
    Guard(
        "T17",
        "property against ancestry",
        setting(History, "_rolled_back", lambda *_: None),
        check_rolled_back,
    ),
    Guard(
        "T18",
        "unknown options are errors",
        setting(source_options, "_NAMES", _AllNames(source_options._NAMES)),
        check_unknown_option,
    ),
    Guard(
        "T19",
        "what is staged is of the same offsets",
        setting(CheckpointIdentity, "covers_the_same", lambda *_: True),
        check_replanned_checkpoint,
    ),
    Guard("T20", "writing waits for commits", without_limit, check_back_pressure),
    Guard(
        "T21",
        "a directory is bound to its table",
        setting(lineage_check, "uncovered", lambda *_: None),
        check_other_table,
    ),
    Guard(
        "T21",
        "a query of many tables knows what each has got",
        setting(lineage_check, "lost", lambda *_: None),
        check_restored_table,
    ),
    Guard(
        "T22",
        "guards outlive the files of their rows",
        rows_of_live_files_alone,
        check_places_of_rewritten_rows,
    ),
    Guard(
        "T23",
        "order is compared again at the commit",
        setting(Resolver, "_late", lambda _, entries, found: np.zeros(len(entries), dtype=bool)),
        check_newer_row_meanwhile,
    ),
    Guard(
        "T24",
        "deleted rows are no source",
        setting(SourceRows, "of_file", lambda _, path, positions: np.ones(len(positions), dtype=bool)),
        check_deleted_row_is_no_source,
    ),
    Guard(
        "T24",
        "values are looked up again at the commit",
        setting(Resolver, "_outdated", lambda *_: 0),
        check_lost_update,
    ),
    Guard(
        "T25",
        "what is staged has its files",
        setting(sink_run, "missing_file", lambda *_: None),
        check_staged_files_are_there,
    ),
    Guard(
        "T25",
        "deletes follow the format version",
        setting(upsert_run, "outdated", lambda *_: False),
        check_upgrade_under_a_staged_checkpoint,
    ),
    Guard(
        "T26",
        "a plan compares the ids of topics",
        setting(OffsetPlanner, "identified", lambda _, due, logged: due),
        check_replay_of_a_topic_made_anew,
    ),
    Guard(
        "T26",
        "what was fetched ahead is of its topic",
        setting(consumers._Kept, "fits", lambda *_: True),
        check_buffer_of_a_topic_made_anew,
    ),
    Guard(
        "T26",
        "a task compares the id when it has read",
        setting(fetcher, "_require_same_topic", lambda *_: None),
        check_topic_made_anew_while_it_is_read,
    ),
    Guard(
        "T27",
        "truncates count where a table has one source",
        setting(SourceTables, "of_topic", lambda tables, *_: tables),
        check_truncate_of_another_source,
    ),
    Guard(
        "T27",
        "a topic is of one table",
        setting(TableCheck, "_is_foreign", lambda *_: False),
        check_change_of_another_table,
    ),
    Guard(
        "T27",
        "no source joins one that was truncated",
        setting(UpsertRun, "_last_truncate", property(lambda _: source_notes.no_truncate)),
        check_source_beside_a_truncated_one,
    ),
    Guard(
        "T28",
        "decimals are compared before they are cast",
        setting(exact_decimals, "require_room", lambda *_: None),
        check_a_decimal_of_more_digits,
    ),
    Guard(
        "T29",
        "rejects alone replace nothing",
        setting(committer, "OVERWRITES", ()),
        check_rejects_alone,
    ),
]
NAMES = [f"{guard.trap}-{guard.name.replace(' ', '-')}" for guard in GUARDS]
TRAPS = {f"T{number}" for number in range(1, 30)}


@pytest.mark.parametrize("guard", GUARDS, ids=NAMES)
def test_with_its_guard_a_check_passes(guard: Guard, tmp_path: Path) -> None:
    guard.check(tmp_path)


@pytest.mark.parametrize("guard", GUARDS, ids=NAMES)
def test_without_its_guard_a_check_fails(guard: Guard, tmp_path: Path, monkeypatch: Patch) -> None:
    guard.remove(monkeypatch)
    with pytest.raises((AssertionError, StreamlakeError, pytest.fail.Exception)):
        guard.check(tmp_path)


def test_every_trap_has_a_guard() -> None:
    assert {guard.trap for guard in GUARDS} == TRAPS
