"""A stream whose rows name their tables, without Spark and without a broker: topics are lists, tasks run here.

What the driver does with a micro-batch and what its tasks do is the product's; only Spark's jobs, its checkpoint directory and
the fetching of records are stood in for.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from streamlake import ids, load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity, canonical_offset
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import StreamlakeError, TableNotFoundError
from streamlake.pipeline import direct_reader, table_writes
from streamlake.pipeline.checkpoint_step import Step
from streamlake.pipeline.known_tables import tables_from_text
from streamlake.pipeline.met_tables import MetTables
from streamlake.pipeline.range_frame import _batch, limited
from streamlake.pipeline.rejects_run import RejectsRun
from streamlake.pipeline.row_names import RowRoute
from streamlake.pipeline.row_tables import RowEndings, RowTableOptions, RowTables
from streamlake.pipeline.set_aside import SetAside
from streamlake.pipeline.sink import IcebergSink
from streamlake.pipeline.sink_run import SinkRun
from streamlake.pipeline.table_names import TableNames
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from tests.unit.decode.raw_records import raw_batch

TOPIC = "events"
_PARTITION = 3
"""That of `raw_batch`."""
_BATCH = 100


class File:
    """A file of a checkpoint directory."""

    def __init__(self) -> None:
        self.content: bytes | None = None

    def write(self, content: bytes) -> None:
        self.content = content

    replace = write


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


def _by_slot(parcels: LocalFrame, slots: int) -> LocalFrame:
    if not parcels.batches:
        return parcels
    table = pa.Table.from_batches(parcels.batches)
    return LocalFrame(table.sort_by([("slot", "ascending"), ("place", "ascending")]).to_batches())


class _Note:
    command = None

    def read(self) -> None:
        """There is none."""

    def write(self, noted: Any) -> None: ...


class _Sink(IcebergSink):
    """A sink whose runs are not bound to a query of Spark's."""

    def opened(
        self, frame: Any, identity: CheckpointIdentity, schema: Any
    ) -> tuple[SinkRun, CheckpointIdentity]:
        run = self._runs.get(identity.job_id)
        if run is None:
            session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
            table = self._table(schema, create=True)
            run = self.new_run(table, cast(Any, _Note()), ids.new_uuid(), identity, cast(Any, session))
            if hasattr(run, "_session"):
                run._session = None
            if self.on_error == "reject":
                run.rejects = RejectsRun(
                    self.table, None, self.max_rejects, job_id="job", run_id="run", patience=run.patience
                )
            self._runs[identity.job_id] = run
        return run, identity


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
        self.named, self.aside_file = File(), File()
        self.aside: SetAside
        self.restart()
        monkeypatch.setattr(direct_reader, "fetch_range", self._fetch)
        monkeypatch.setattr(table_writes, "task_ids", lambda: (0, next(self._tasks), 0))
        monkeypatch.setattr(table_writes, "_by_slot", _by_slot)
        monkeypatch.setattr(table_writes, "bound_by_parcels", lambda session: None)

    _tasks = itertools.count()

    def restart(self, **options: Any) -> None:
        text = self.named.content
        known = {} if text is None else tables_from_text(text.decode(), "tables.json")
        self._rows = RowTables(options.get("source", self._source), self._options, self._sink, None, {})
        self._rows._known = MetTables(cast(Any, self.named), known)
        self.aside = SetAside(
            cast(Any, self.aside_file), getattr(self, "aside", SimpleNamespace(entries={})).entries
        )
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
        receipts = {Path(name).name: ending for name, ending in ended.endings.items()}
        return {name: each.outcome for name, each in receipts.items() if isinstance(each, CommitReceipt)}

    def _taken(self) -> RowEndings:
        number = len(self._ends) - 1
        ends = [canonical_offset(json.dumps({"offsets": {TOPIC: {_PARTITION: end}}})) for end in self._ends]
        first = {"offsets": {TOPIC: {_PARTITION: self._ends[0]}}, "first": {TOPIC: {_PARTITION: 0}}}
        ends[0] = canonical_offset(json.dumps(first))
        start = (ends[number - 1],) if number else ()
        identity = CheckpointIdentity("p", "job", number, start, (ends[number],))
        step = Step.of(identity)
        frame = _Frame()
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

    def _sink(self, name: str) -> IcebergSink:
        own = {**self._settings, **self._own.get(Path(name).name, {})}
        return _Sink(name, None, own.pop("mode", "append"), **own)

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
