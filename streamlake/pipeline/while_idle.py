"""What a query on the direct path does while no record is due: commit what is staged, and notice that a commit has failed.

Place in the flow: between Spark's tick and the end of its micro-batch, which is not known yet. A predecessor may have told
Spark that checkpoints are done which are only staged, and an idle topic may bring no record for days. Invariant: nothing of
the micro-batch itself is touched, and no empty one is run: what is done here is what the next one would do first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import StreamlakeError
from streamlake.pipeline.direct_tables import DirectTable
from streamlake.pipeline.micro_batch import commit_staged
from streamlake.pipeline.parallel import in_parallel
from streamlake.pipeline.query_identity import checkpoint_identity
from streamlake.pipeline.sink_run import SinkRun

Passes = Callable[[StreamlakeError], bool]


def _none(_: StreamlakeError) -> bool:
    return False


class WhileIdle:
    """Called again and again while the records of a checkpoint are waited for; it works once, and looks at the queues then.

    `tables` are those that may have something staged; errors that `passes` are left to the next micro-batch. Raises any other.
    """

    def __init__(
        self,
        tables: Callable[[], Sequence[DirectTable]],
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
        if not self._checkpoint_id:
            return
        if self._runs is None:
            self._runs = self._opened()
        for run in self._runs:
            if run.queue is not None:
                run.queue.check()

    def _opened(self) -> list[SinkRun]:
        """The runs, which have committed what is staged."""
        # Its end is not in the log, so it is that of no staged checkpoint.
        identity = checkpoint_identity(self._frame, self._checkpoint_id)
        found = in_parallel(self._tables(), lambda table: self._worked(table, identity))
        for error in found:
            if isinstance(error, StreamlakeError) and not self._passes(error):
                raise error
        return [run for run in found if isinstance(run, SinkRun)]

    def _worked(self, table: DirectTable, identity: CheckpointIdentity) -> SinkRun:
        run, own = table.sink.opened(self._frame, identity, table.schema)
        commit_staged(run, own)
        return run
