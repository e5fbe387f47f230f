"""A query on a checkpoint directory without Spark: its logs on disk as Spark writes them, the sink's own code, real files.

The source is a list of records; a checkpoint takes the next `step` of them. So a directory can be copied, restored,
deleted and recovered by `streamlake recover`, and the stream run on to its end, in milliseconds.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamlake.catalog.open import create, open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.checkpoint.spark_logs import remove_torn, sync_entries
from streamlake.checkpoint.table_note import Calls, Noted
from streamlake.commit.findings import table_gone
from streamlake.commit.lineage import RecoverCommand, lineage_error
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import TableNotFoundError
from streamlake.ids import new_uuid
from streamlake.pipeline.runs.commit_queue import CommitQueue
from streamlake.pipeline.runs.micro_batch import run_micro_batch
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.upsert_options import UpsertOptions
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.pipeline.spark.outage_retry import OutageRetry
from streamlake.spec.types.ddl import parse_ddl
from streamlake.table.table import Table
from streamlake.tables import load_table
from streamlake.write.files.result import WriteResult
from streamlake.write.task import write_task
from tests.helpers.faulty_io import FaultyIO, faulty_table
from tests.helpers.local_upserts import bucketed_results
from tests.helpers.tables import FAST_CHECKS, FAST_RETRIES

DDL = "id long, v string"
Record = tuple[int, str]


class FileNote:
    """CheckpointTable over the files of a SparkDirectory."""

    def __init__(self, directory: SparkDirectory, table: str, branch: str) -> None:
        self._directory = directory
        self._table = table
        self._branch = branch
        self.command = RecoverCommand(table, "", branch, None, directory.location)

    def read(self) -> Noted | None:
        return self._directory.note(self._table, self._branch)

    def others(self) -> list[str]:
        return self._directory.other_tables(self._table, self._branch)

    def write(self, noted: Noted) -> None:
        self._directory.write_note(noted, self._table, self._branch)


class _Appending(SinkRun):
    def write(self, frame: Any, identity: CheckpointIdentity) -> list[WriteResult]:
        task = write_task(self._write_target(identity), lambda: (0, 0, 0))
        return [
            WriteResult.from_bytes(value.as_py())
            for answer in task(iter(frame.to_batches()))
            for value in answer.column("result")
        ]


class _Upserting(UpsertRun):
    def write(self, frame: Any, identity: CheckpointIdentity) -> list[WriteResult]:
        return self.resolve(
            identity, lambda target: bucketed_results(target, frame, self.table.schema, self._options)
        )


class LocalStream:
    """A query that reads `source` into `home`/table from the checkpoint directory `home`/`directory`."""

    def __init__(
        self,
        home: Path,
        source: list[Record],
        *,
        mode: str = "append",
        pipeline: str | None = "p",
        directory: str = "checkpoint",
        step: int = 2,
        branch: str = "main",
        location: str | None = None,
        catalog: Mapping[str, str] | None = None,
        io: FaultyIO | None = None,
        delete_mode: str = "position",
        ahead: int = 1,
        calls: Calls = Calls.EVERY,
    ) -> None:
        self.location = location or str(home / "table")
        self.path = home / directory
        self.source = source
        self.mode = mode
        self.pipeline = pipeline
        self.step = step
        self.branch = branch
        self.catalog = catalog
        self.io = io
        self.delete_mode = delete_mode
        self.ahead = ahead
        self.calls = calls
        self.receipts: list[CommitReceipt] = []
        self._run: SinkRun | None = None

    # The life of a query

    def start(self, checkpoints: int = 10**9) -> LocalStream:
        """A new driver that runs up to so many checkpoints, or until the source is used up."""
        self._run = None
        remove_torn(str(self.path))
        self.go_on(checkpoints)
        return self

    def go_on(self, checkpoints: int = 10**9) -> None:
        """The driver that was started goes on."""
        for _ in range(checkpoints):
            if not self._one():
                return

    def plan(self) -> int | None:
        """Spark's next checkpoint, written to its offset log; None when there is nothing to do."""
        directory = self.directory
        planned, completed = directory.last_planned, directory.last_completed
        if planned > completed:
            return planned
        begin = self._end(completed)
        if begin >= len(self.source):
            return None
        end = min(begin + self.step, len(self.source))
        self._log("offsets", completed + 1, f'v1\n{{"batchWatermarkMs":0}}\n{{"end":{end}}}\n')
        return completed + 1

    def _one(self) -> bool:
        checkpoint_id = self.plan()
        if checkpoint_id is None:
            return False
        sync_entries(str(self.path), checkpoint_id)
        identity = self.identity(checkpoint_id)
        if self._run is None:
            self._run = self._opened(identity)
        begin, end = self._end(checkpoint_id - 1), self._end(checkpoint_id)
        rows = _rows(self.source[begin:end])
        receipt = run_micro_batch(self._run, rows, self._run.named(identity))  # type: ignore[arg-type]
        if receipt is not None:
            self.receipts.append(receipt)
        self._log("commits", checkpoint_id, 'v1\n{"nextBatchWatermarkMs":0}\n')
        return True

    # Its parts

    @property
    def directory(self) -> SparkDirectory:
        if not (self.path / "metadata").exists():
            self._write(self.path / "metadata", f'{{"id":"{new_uuid()}"}}')
        return SparkDirectory(str(self.path))

    def identity(self, checkpoint_id: int) -> CheckpointIdentity:
        directory = self.directory
        start = directory.end_offsets(checkpoint_id - 1) if checkpoint_id else ()
        end = directory.end_offsets(checkpoint_id)
        assert start is not None
        assert end is not None
        name = self.pipeline or f"{self.location}:{directory.job_id}"
        return CheckpointIdentity(name, directory.job_id, checkpoint_id, start, end)

    def _opened(self, identity: CheckpointIdentity) -> SinkRun:
        """As IcebergSink does it."""
        directory = self.directory
        note = FileNote(directory, self.location, self.branch)
        noted = note.read()
        outage_retry = OutageRetry(dict)
        try:
            table = outage_retry.through(self._table)
        except TableNotFoundError:
            if noted is not None and identity.checkpoint_id:
                gone = table_gone(self.location, noted.table_uuid)
                raise lineage_error(gone, replace(note.command, pipeline=identity.pipeline)) from None
            properties = {**FAST_RETRIES, **FAST_CHECKS}
            create(self.location, parse_ddl(DDL), properties=properties, catalog=self.catalog)
            table = self._table()
        if noted is not None:
            identity = replace(identity, pipeline=noted.pipelines.get(identity.pipeline, identity.pipeline))
        settings = RunSettings(
            job_id=identity.job_id,
            run_id=new_uuid(),
            branch=self.branch,
            mode=self.mode,
            max_continuous_empty_commits=10,
            queue=CommitQueue(self.ahead, self.receipts.append) if self.ahead > 1 else None,
            command=note.command,
            calls=self.calls,
        )
        run: SinkRun
        if self.mode == "upsert":
            options = UpsertOptions.of(
                table, key=["id"], sequence_by=(), row_kind=None, delete_mode=self.delete_mode, parallelism=2
            )
            run = _Upserting(table, note, None, options, settings)  # type: ignore[arg-type]
        else:
            run = _Appending(table, note, settings)  # type: ignore[arg-type]
        run.remember(noted, identity, directory.end_offsets)
        return run

    def _table(self) -> Table:
        return (
            open_table(self.location, self.catalog)
            if self.io is None
            else faulty_table(self.location, self.io)
        )

    def finish(self) -> BaseException | None:
        """The query has ended; what is staged is committed, or the error why not is returned."""
        queue = None if self._run is None else self._run.queue
        return None if queue is None else queue.drain()

    def _end(self, checkpoint_id: int) -> int:
        if checkpoint_id < 0:
            return 0
        [text] = self.directory.end_offsets(checkpoint_id) or ("",)
        return int(text.removeprefix('{"end": ').removesuffix("}"))

    def _log(self, log: str, checkpoint_id: int, text: str) -> None:
        path = self.path / log / str(checkpoint_id)
        assert not path.exists(), "Spark refuses to write an entry of its logs twice"
        self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    # What operators do

    def copied(self, name: str) -> LocalStream:
        """A query on a copy of the checkpoint directory as it is now."""
        shutil.copytree(self.path, self.path.with_name(name))
        other = LocalStream(
            self.path.parent,
            self.source,
            mode=self.mode,
            pipeline=self.pipeline,
            directory=name,
            step=self.step,
            branch=self.branch,
            location=self.location,
        )
        return other

    def rows(self) -> list[Record]:
        """The table's rows, sorted."""
        ref = None if self.branch == "main" else self.branch
        found = load_table(self.location, self.catalog).scan(ref=ref).to_arrow()
        return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def _rows(records: Sequence[Record]) -> pa.Table:
    ids, values = zip(*records, strict=True) if records else ((), ())
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.string())})
