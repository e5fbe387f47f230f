"""The idle work of a direct query while no record is due: commit what is staged, and notice failed commits.

Place in the flow: between Spark's tick and the end of its micro-batch, which is not known yet. A predecessor
may have reported checkpoints as done to Spark that are only staged, and an idle topic may bring no record for
days. Invariant: the micro-batch itself is not touched, and no empty one is run; the work done here is what
the next micro-batch would do first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pyspark.sql import DataFrame

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import StreamlakeError
from streamlake.pipeline.runs.direct_tables import OpenedTable
from streamlake.pipeline.runs.micro_batch import commit_staged
from streamlake.pipeline.runs.parallel import in_parallel
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.spark.query_identity import checkpoint_identity
from streamlake.spec.types.schema import Schema


class IdleTable(Protocol):
    """A table that may have something staged. `schema` is that of its rows."""

    @property
    def stream(self) -> OpenedTable:
        """How it is opened."""
        ...

    @property
    def schema(self) -> Schema:
        """The schema of its rows."""
        ...


Passes = Callable[[StreamlakeError], bool]


def _none(_: StreamlakeError) -> bool:
    return False


class WhileIdle:
    """Called repeatedly while the query waits for the records of a checkpoint. The first call commits what is
    staged; each call checks the queues.

    `tables` are those that may have something staged; errors that `passes` accepts are left to the next
    micro-batch. Raises any other.
    """

    def __init__(
        self,
        tables: Callable[[], Sequence[IdleTable]],
        frame: DataFrame,
        checkpoint_id: int,
        passes: Passes = _none,
    ) -> None:
        self._tables = tables
        self._frame = frame
        self._checkpoint_id = checkpoint_id
        self._passes = passes
        self._runs: list[SinkRun] | None = None

    def __call__(self) -> None:
        """Work once, then check the queues. Raises a failed commit's error, and any that `passes` refuses."""
        if not self._checkpoint_id:
            return
        if self._runs is None:
            self._runs = self._opened()
        for run in self._runs:
            if run.queue is not None:
                run.queue.check()

    def _opened(self) -> list[SinkRun]:
        """The runs of the tables, which have committed what was staged."""
        # The checkpoint's end is not in the log yet, so it equals that of no staged checkpoint.
        identity = checkpoint_identity(self._frame, self._checkpoint_id)
        found = in_parallel(self._tables(), lambda table: self._worked(table, identity))
        for error in found:
            if isinstance(error, StreamlakeError) and not self._passes(error):
                raise error
        return [run for run in found if isinstance(run, SinkRun)]

    def _worked(self, table: IdleTable, identity: CheckpointIdentity) -> SinkRun:
        run, own = table.stream.opened(self._frame, identity, table.schema)
        commit_staged(run, own)
        return run
