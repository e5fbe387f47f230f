"""One micro-batch of a query that reads a table, written into one table.

    splits -> [read, write] -> outcomes                                              (appends)
    splits -> [read] -> shuffle blocks -> by bucket -> [look up, write] -> outcomes     (upserts)

Place in the flow: Spark calls this per micro-batch of an IcebergSource. Invariant: files of a job that did
not succeed as a whole are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import IndexDamagedError, StreamlakeError
from streamlake.pipeline.iceberg.split_frame import SplitFrame
from streamlake.pipeline.iceberg.table_offsets import Pieces, TableOffsets
from streamlake.pipeline.runs.direct_tables import OpenedTable
from streamlake.pipeline.runs.micro_batch import run_micro_batches
from streamlake.pipeline.runs.parallel import Ending
from streamlake.pipeline.runs.requests import TABLE_HANDLERS, AskedTable, Requests
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.split.fitted_columns import FittedColumns
from streamlake.pipeline.runs.stages import Aim, WriteEnding, Written
from streamlake.pipeline.runs.table_writes import by_slot, key_route, needed_columns
from streamlake.pipeline.runs.turns import turn
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.pipeline.spark.arrow_batches import bound_by_shuffle_blocks
from streamlake.pipeline.spark.task_outcome import collected, task_ids
from streamlake.spec.types.schema import Schema
from streamlake.tasks.intake import KeyRoute
from streamlake.tasks.shuffle_blocks import SHUFFLE_BLOCKS_DDL
from streamlake.tasks.split_tasks import ONLY_TABLE, AppendSplits, ChangeOrder, SplitBlocks, SplitReader
from streamlake.tasks.table_tasks import ChangeTask
from streamlake.tasks.watermarks import merged
from streamlake.write.files.outcomes import OUTCOMES_DDL, TaskOutcome, results_of
from streamlake.write.upsert.upsert_target import UpsertTarget


@dataclass(frozen=True)
class SplitTable:
    """A table that a source table's rows go into. `schema` is that of the rows, for a table that is created;
    `watermark_column` is one of their columns; `order_column` has the numbers of the snapshots that made
    changes (None: they are in the order in which they are read). `replaces`: the old row of an update is
    taken for replaced by the new one.
    """

    stream: OpenedTable
    schema: Schema
    columns: FittedColumns
    watermark_column: str | None = None
    order_column: str | None = None
    replaces: bool = False


@dataclass(frozen=True)
class _Part:
    """The table's part in a micro-batch; see TablePart."""

    run: SinkRun
    identity: CheckpointIdentity
    may_idle: bool = False


def write_split_batch(
    table: SplitTable, frame: DataFrame, identity: CheckpointIdentity, offsets: TableOffsets
) -> Ending:
    """Write the rows of a checkpoint into the table, exactly once; `identity` does not have the pipeline's
    name yet. Splits are planned only where something is to be written. Raises what ends Spark's job.
    """
    run, own = table.stream.opened(frame, identity, table.schema)
    job = _Job(table, frame.sparkSession, offsets)
    with turn(run, own, frame):
        return run_micro_batches([_Part(run, own)], lambda due: [job.write(each) for each in due])[0]


@dataclass(frozen=True)
class _Job:
    """Writes the splits of one micro-batch."""

    table: SplitTable
    session: SparkSession
    offsets: TableOffsets

    def write(self, part: _Part) -> WriteEnding:
        """The files of the micro-batch, or the error that remains. They are written again whenever a request
        of the tasks was answered, see `requests`.
        """
        run, requests, rebuild = part.run, Requests(TABLE_HANDLERS), False
        pieces = self.offsets.pieces(part.identity, in_order=isinstance(run, UpsertRun))
        while True:
            try:
                self.table.columns.follow(run, pieces.columns)
                aim = run.aim(part.identity, rebuild=rebuild)
                route = _route(run, aim)
                order = () if route is None or self.table.order_column is None else (self.table.order_column,)
                beside = () if route is None else (*needed_columns(route, aim.target), *order)
                columns = self.table.columns.of(run, pieces.columns, beside)
            except StreamlakeError as error:
                return error
            outcomes = self._outcomes(run, aim, pieces, columns, route)
            results = results_of(outcomes)
            errors = [each.error for each in outcomes if each.error is not None]
            if not errors:
                newest = merged(each.newest for each in outcomes).newest
                return Written(tuple(results), aim.base, newest)
            run.discard(path for result in results for path in result.paths)
            answer = requests.answer(AskedTable(run, aim), errors)
            if isinstance(answer, StreamlakeError):
                return answer
            rebuild = answer is IndexDamagedError

    def _outcomes(
        self, run: SinkRun, aim: Aim, pieces: Pieces, columns: tuple[str, ...], route: KeyRoute | None
    ) -> Sequence[TaskOutcome]:
        if not pieces.splits:
            return ()
        reader = SplitReader(pieces.scan, columns, self.table.watermark_column, self.table.columns.source)
        target = aim.target
        if route is None or not isinstance(target, UpsertTarget):
            assert not isinstance(target, UpsertTarget)
            frame = SplitFrame(self.session, pieces.splits, run.job.parallelism)
            return collected(frame.tasks(AppendSplits(reader, target, task_ids), OUTCOMES_DDL))
        bound_by_shuffle_blocks(self.session)
        frame = SplitFrame(self.session, pieces.splits)
        # Rows that are paired by other columns, or by their row ids, may have another key than before.
        moves_keys = self.table.replaces and not set(route.columns) <= set(pieces.paired_by)
        task = SplitBlocks(reader, route, task_ids, self._order(run, pieces), moves_keys)
        blocks = frame.tasks(task, SHUFFLE_BLOCKS_DDL)
        slots = tuple((ONLY_TABLE, bucket) for bucket in range(target.buckets))
        writing = ChangeTask(slots, {ONLY_TABLE: target}, task_ids)
        return collected(by_slot(blocks, len(slots)).mapInArrow(writing.__call__, OUTCOMES_DDL))

    def _order(self, run: SinkRun, pieces: Pieces) -> ChangeOrder | None:
        name = self.table.order_column
        if name is None:
            return None
        keeps = name in run.table.schema.column_names
        return ChangeOrder(name, pieces.first_ordinal, keeps, pieces.is_net)


def _route(run: SinkRun, aim: Aim) -> KeyRoute | None:
    return key_route(aim.target, run.row_kind) if isinstance(aim.target, UpsertTarget) else None
