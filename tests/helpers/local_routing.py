"""A stream whose rows name their tables, without Spark and without a broker: topics are lists, tasks run here.

What the driver does with a micro-batch and what its tasks do is the product's, and the checkpoint directory is as Spark writes it;
only Spark's jobs and the fetching of records are stood in for.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from streamlake import ids, load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity, offsets_digest
from streamlake.checkpoint.offset_entries import entry_path, entry_to_bytes
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.table_log import DIRECTORY as TABLE_LOG
from streamlake.checkpoint.table_log import table_log_path
from streamlake.checkpoint.table_note import Calls
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import StreamlakeError, TableNotFoundError
from streamlake.pipeline.kafka.checkpoint_step import Step
from streamlake.pipeline.kafka.range_frame import _batch, limited
from streamlake.pipeline.runs import table_writes
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_from_text
from streamlake.pipeline.sinks.quarantine import QUARANTINE_PATH
from streamlake.pipeline.sinks.row_tables import RowEndings, RowTableOptions, RowTables
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.pipeline.sinks.table_discovery import DiscoveredTables
from streamlake.pipeline.sinks.table_quarantine import Quarantine
from streamlake.pipeline.sinks.table_stream import TableMember, TableStream
from streamlake.pipeline.sinks.written_tables import WrittenTables
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.tasks import direct_reader
from streamlake.tasks.row_names import RowRoute
from streamlake.tasks.table_names import TableNames
from tests.helpers.local_stream import FileNote
from tests.unit.decode.raw_records import raw_batch

TOPIC = "events"
_PARTITION = 3
"""That of `raw_batch`."""
_BATCH = 100


class File:
    """A file of a checkpoint directory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def content(self) -> bytes | None:
        return self._path.read_bytes() if self._path.exists() else None

    def write(self, content: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(content)

    replace = write


class _TableLog:
    """The log of a query's tables, on disk."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def checkpoints(self) -> list[int]:
        directory = self._home / TABLE_LOG
        return sorted(int(path.name) for path in directory.iterdir()) if directory.exists() else []

    def text(self, checkpoint_id: int) -> str | None:
        content = self._file(checkpoint_id).content
        return None if content is None else content.decode()

    def replace(self, checkpoint_id: int, content: bytes) -> None:
        self._file(checkpoint_id).write(content)

    def remove(self, checkpoint_id: int) -> None:
        (self._home / table_log_path(checkpoint_id)).unlink()

    def _file(self, checkpoint_id: int) -> File:
        return File(self._home / table_log_path(checkpoint_id))


class LocalFrame:
    """What tasks made."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.batches = batches

    def mapInArrow(self, task: Callable[[Any], Iterator[pa.RecordBatch]], ddl: str) -> LocalFrame:
        return LocalFrame(list(task(iter(self.batches))))

    def collect(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for batch in self.batches for row in batch.to_pylist()]


class LocalRanges:
    """Ranges as RangeFrame has them, a task each."""

    session = None

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        self.ranges = ranges

    def groups(
        self, of: Callable[[str], int | None], limits: Mapping[int, int]
    ) -> Sequence[Sequence[OffsetRange]]:
        return limited(self.ranges, len(self.ranges), of, limits)

    def together(
        self,
        groups: Sequence[Sequence[OffsetRange]],
        most: int,
        task: Callable[[Any], Iterator[pa.RecordBatch]],
        ddl: str,
    ) -> LocalFrame:
        made = [task(iter([_batch(group)])) for group in groups]
        return LocalFrame(list(itertools.chain.from_iterable(made)))

    def tasks(self, task: Callable[[Any], Iterator[pa.RecordBatch]], ddl: str) -> LocalFrame:
        return self.together([[piece] for piece in self.ranges], len(self.ranges), task, ddl)


def _by_slot(shuffle_blocks: LocalFrame, slots: int) -> LocalFrame:
    if not shuffle_blocks.batches:
        return shuffle_blocks
    table = pa.Table.from_batches(shuffle_blocks.batches)
    return LocalFrame(table.sort_by([("slot", "ascending"), ("place", "ascending")]).to_batches())


class _Stream(TableStream):
    """A table whose runs are not bound to a query of Spark's."""

    def opened(
        self, frame: Any, identity: CheckpointIdentity, schema: Any
    ) -> tuple[SinkRun, CheckpointIdentity]:
        identity = replace(identity, pipeline="p")
        run = self.runs.by_job.get(identity.job_id)
        if run is None:
            session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
            directory = frame.directory
            query = SimpleNamespace(run_id=ids.new_uuid(), logged=SimpleNamespace(of=directory.end_offsets))
            note = cast(Any, FileNote(directory, self.settings.table, self.settings.branch))
            run = self.opened_run(cast(Any, query), note, identity, schema, cast(Any, session))
            if hasattr(run, "_session"):
                run._session = None
            self.runs.by_job[identity.job_id] = run
        return run, run.named(identity)


class RoutedStream:
    """One topic of JSON (or of `source`'s format) into tables below `home`, a checkpoint per `take`.

    `restart` is another driver: it knows what is durable, and nothing else. `jobs` counts readings of the topic.
    """

    def __init__(
        self,
        home: Path,
        monkeypatch: pytest.MonkeyPatch,
        ddl: str | None,
        *,
        table: str = "e_{row.c}",
        route: Any = None,
        default_table: str | None = None,
        most: int = 1_000,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
        format: str = "json",
        include: Sequence[str] = (),
        partial_update: bool = False,
        **settings: Any,
    ) -> None:
        self.home = home
        self.template = str(home / table)
        self.values: list[Any] = []
        self.jobs = 0
        self._members: dict[str, TableMember] = {}
        self._written: WrittenTables | None = None
        self._ends: list[int] = []
        own = {"partial-update": "true"} if partial_update else {}
        self._source = KafkaSource("h:1", TOPIC, schema=ddl, format=format, include=include, options=own)
        default = None if default_table is None else TableNames(str(home / default_table), None)
        self._options = RowTableOptions(
            TableNames(self.template, None, has_route=route is not None),
            lambda template: RowRoute(template, route),
            default,
            most,
        )
        self._settings = {"create": True, **settings}
        self._own = tables or {}
        self.path = home / "checkpoint"
        if not self.path.exists():
            File(self.path / "metadata").write(b'{"id":"job"}')
        self.named, self.aside_file = File(self.path / TABLES_PATH), File(self.path / QUARANTINE_PATH)
        self.aside: Quarantine
        self.restart()
        monkeypatch.setattr(direct_reader, "fetch_range", self._fetch)
        monkeypatch.setattr(table_writes, "task_ids", lambda: (0, next(self._tasks), 0))
        monkeypatch.setattr(table_writes, "by_slot", _by_slot)
        monkeypatch.setattr(table_writes, "bound_by_shuffle_blocks", lambda session: None)

    _tasks = itertools.count()

    def restart(self, **options: Any) -> None:
        text = self.named.content
        known = {} if text is None else tables_from_text(text.decode(), "tables.json")
        self._rows = RowTables(
            options.get("source", self._source), self._options, self._stream, None, self._members
        )
        self._rows._known = DiscoveredTables(cast(Any, self.named), known)
        self.aside = Quarantine(
            cast(Any, self.aside_file), getattr(self, "aside", SimpleNamespace(entries={})).entries
        )
        self._members.clear()
        self._written = None
        self._is_first = True

    def take(self, *values: Any) -> dict[str, Outcome]:
        """A checkpoint with these values: what became of it in the tables that had rows. Raises what one of them met, once the
        others have committed."""
        self.values += values
        self._ends.append(len(self.values))
        return self.again()

    def again(self) -> dict[str, Outcome]:
        """The last checkpoint once more, as after a crash."""
        ended = self._taken()
        for ending in (*ended.errors.values(), *ended.endings.values()):
            if isinstance(ending, StreamlakeError):
                raise ending
        number = len(self._ends) - 1
        runs = {name: self._members[name].stream.runs.by_job.get("job") for name in ended.endings}
        assert self._written is not None
        self._written.keep(self._identity(number), cast(Any, runs))
        File(self.path / f"commits/{number}").write(b"v1\n{}\n")
        receipts = {Path(name).name: ending for name, ending in ended.endings.items()}
        return {name: each.outcome for name, each in receipts.items() if isinstance(each, CommitReceipt)}

    def finish(self) -> None:
        """The query has ended: what is staged is committed, or cannot be."""
        for member in self._members.values():
            member.stream.runs.finish("job")

    @property
    def directory(self) -> SparkDirectory:
        return SparkDirectory(str(self.path))

    def go_back_to(self, path: Path) -> None:
        """The directory is restored from a copy."""
        shutil.rmtree(self.path)
        shutil.copytree(path, self.path)
        self.replan()

    def replan(self) -> None:
        """The directory has been put back to an earlier checkpoint: what came after it is read again."""
        del self._ends[self.directory.next_checkpoint :]
        del self.values[self._ends[-1] :]

    def _identity(self, number: int) -> CheckpointIdentity:
        directory = self.directory
        start = directory.end_offsets(number - 1) if number else ()
        end = directory.end_offsets(number)
        assert start is not None
        assert end is not None
        return CheckpointIdentity("p", "job", number, start, end)

    def _plan(self, number: int) -> None:
        """The logs' entries of a checkpoint, as Spark and the direct path write them."""
        part = (TOPIC, _PARTITION)
        end = SourceOffsets({part: self._ends[number]}, {} if number else {part: 0})
        tick = json.dumps({"offset": number + 1, "timestamp": 1})
        File(self.path / f"offsets/{number}").write(f"v1\n{{}}\n{tick}\n".encode())
        File(self.path / entry_path(number)).write(entry_to_bytes(end.to_text()))
        (self.path / f"commits/{number}").unlink(missing_ok=True)

    def _digest_of(self, number: int) -> str | None:
        ends = self.directory.end_offsets(number)
        return None if ends is None else offsets_digest(ends)

    def _taken(self) -> RowEndings:
        number = len(self._ends) - 1
        self._plan(number)
        identity = self._identity(number)
        if self._written is None:
            self._written = WrittenTables(_TableLog(self.path), "job", number, self._digest_of, 3)
        step = Step.of(identity)
        frame = _Frame(self.directory)
        offsets = SimpleNamespace(frame=lambda session, identity, missed: self._ranges(step, missed))
        ended = self._rows.write(
            cast(Any, frame), identity, cast(Any, offsets), step, self.aside, is_first=self._is_first
        )
        self._is_first = False
        return ended

    def rows(self, part: str) -> list[dict[str, Any]]:
        """The rows of a table, by id."""
        found = load_table(str(self.home / part)).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["id"])

    def ids(self, part: str) -> list[int]:
        return [row["id"] for row in self.rows(part)]

    def tables(self) -> set[str]:
        return {path.name for path in self.home.iterdir() if (path / "metadata").is_dir()}

    def snapshots(self, part: str) -> int:
        try:
            return len(open_table(str(self.home / part)).snapshots)
        except TableNotFoundError:
            return 0

    def _stream(self, name: str) -> TableStream:
        own = {**self._settings, **self._own.get(Path(name).name, {})}
        sink = IcebergSink(name, None, own.pop("mode", "append"), pipeline="p", **own)
        stream = sink.stream(Calls.QUERY, self._last_written)
        return _Stream(stream.settings, stream.runs)

    def _last_written(self, table: str, branch: str) -> int:
        assert self._written is not None
        return self._written.last(table, branch)

    def _ranges(self, step: Step, missed: Sequence[OffsetRange]) -> LocalRanges:
        self.jobs += 1
        own = [
            OffsetRange(topic, partition, step.begin[topic, partition], end)
            for (topic, partition), end in step.end.items()
        ]
        return LocalRanges([*missed, *own])

    def _fetch(self, source: KafkaSource, piece: OffsetRange, parts: Any) -> Iterator[pa.RecordBatch]:
        records = [
            value if isinstance(value, dict) and "value" in value else {"value": value}
            for value in self.values[piece.start : piece.until]
        ]
        for low in range(0, len(records), _BATCH):
            yield raw_batch(records[low : low + _BATCH], TOPIC, piece.start + low)


class _Frame:
    sparkSession = None

    def __init__(self, directory: SparkDirectory) -> None:
        self.directory = directory
