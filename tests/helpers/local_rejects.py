"""A stream with rejects without Spark and without a broker: batches of values into a table and its rejects table.

The reading and writing of the direct path's tasks happen here in one go; everything from the recovery of what a predecessor
staged to the commits of both tables is the product's.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity, canonical_offset
from streamlake.clock import monotonic
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import TableNotFoundError
from streamlake.pipeline.runs.commit_queue import CommitQueue
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from streamlake.pipeline.runs.micro_batch import finish, receipt_if_known
from streamlake.pipeline.runs.rejected.rejects_run import RejectsRun
from streamlake.pipeline.runs.rejected.rejects_table import rejects_name
from streamlake.pipeline.runs.run_settings import RunSettings
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.source.kafka_source import KafkaSource
from streamlake.tasks.direct_reader import row_decoder
from streamlake.tasks.record_screen import RecordScreen, reject_rules
from streamlake.write.task import write_rows
from streamlake.write.task_writer import TaskWriter
from tests.unit.decode.raw_records import raw_batch

TOPIC = "orders"
PARTITION = "3"
"""That of raw_batch."""


class _Note:
    """No checkpoint directory."""

    def read(self) -> None:
        """There is none."""

    def write(self, noted: Any) -> None: ...


class RejectingStream:
    """The stream `pipeline` of `batches` of values into the table at `location`, which exists: a checkpoint per batch.

    Each instance is a driver: a new one knows what is durable, and nothing else. `directory` gets what Spark writes to a
    checkpoint directory.
    """

    def __init__(
        self,
        location: Path,
        batches: Sequence[Sequence[Any]],
        ddl: str,
        *,
        pipeline: str = "p",
        most: int | None = None,
        queue: CommitQueue | None = None,
        directory: Path | None = None,
        mode: str = "append",
    ) -> None:
        self._batches = batches
        self._directory = directory
        self._source = KafkaSource("h:1", TOPIC, schema=ddl)
        self._pipeline = pipeline
        job_id = f"job-{pipeline}"
        if directory is not None:
            directory.mkdir(exist_ok=True)
            (directory / "metadata").write_text(json.dumps({"id": job_id}))
        self.run = SinkRun(
            open_table(str(location)),
            cast(CheckpointTable, _Note()),
            RunSettings(
                job_id=job_id,
                run_id="run",
                branch="main",
                mode=mode,
                max_continuous_empty_commits=10,
                queue=queue,
            ),
        )
        self.rejects = RejectsRun(
            str(location), None, most, job_id=job_id, run_id="run", outage_retry=self.run.outage_retry
        )
        self.run.rejects = self.rejects

    def checkpoint(self, number: int) -> CommitReceipt | None:
        """What Spark has done by a micro-batch, again or for the first time."""
        identity = self._identity(number)
        self._log("offsets", number, f'v1\n{{"batchWatermarkMs":0}}\n{identity.end_offsets[0]}\n')
        receipt = self._written(number, identity)
        self._log("commits", number, 'v1\n{"nextBatchWatermarkMs":0}\n')
        return receipt

    def _written(self, number: int, identity: CheckpointIdentity) -> CommitReceipt | None:
        receipt = receipt_if_known(self.run, identity)
        if receipt is not None:
            return receipt
        started = monotonic()
        target = self.run.target(identity)
        rules = reject_rules(target, None, self.rejects.stamp(identity), self.rejects.most)
        screen = RecordScreen(row_decoder(self._source), rules)
        first = sum(len(batch) for batch in self._batches[:number])
        raw = raw_batch([{"value": value} for value in self._batches[number]], TOPIC, first)
        decoded = screen.decode(raw)
        results = [write_rows(cast(Any, target), [decoded.rows], 0, 0, 0)]
        rejected = screen.rejects_of(decoded)
        written = []
        if rejected is not None:
            beside = self.rejects.target(identity)
            if beside is None:
                self.rejects.create()
                beside = self.rejects.target(identity)
            assert beside is not None
            writer = TaskWriter(beside, 0, 0, 0)
            writer.write(rejected)
            written = [writer.close()]
        self.rejects.take(identity, written)
        return finish(self.run, identity, results, started)

    def _identity(self, number: int) -> CheckpointIdentity:
        ends = [
            canonical_offset(
                json.dumps(
                    {
                        "offsets": {TOPIC: {PARTITION: end}},
                        **({} if at else {"first": {TOPIC: {PARTITION: 0}}}),
                    }
                )
            )
            for at, end in enumerate(itertools.accumulate(map(len, self._batches)))
        ]
        start = (ends[number - 1],) if number else ()
        return CheckpointIdentity(self._pipeline, f"job-{self._pipeline}", number, start, (ends[number],))

    def _log(self, log: str, number: int, text: str) -> None:
        if self._directory is not None:
            (self._directory / log).mkdir(exist_ok=True)
            (self._directory / log / str(number)).write_text(text)


def rejected_rows_of(location: Path) -> list[dict[str, Any]]:
    """The rows of a table's rejects, by offset; none where there is no such table."""
    try:
        found = load_table(rejects_name(str(location))).scan().to_arrow()
    except TableNotFoundError:
        return []
    rows: list[dict[str, Any]] = found.sort_by("offset").to_pylist()
    return rows
