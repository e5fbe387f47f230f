"""Reports the outcomes of a task, with a final error in place of the next one.

Invariant: between an outcome and its way to the driver the task can be killed, and the attempt then leaves
orphans and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streamlake.failpoints import failpoint
from streamlake.tasks.task_errors import FINAL_ERRORS
from streamlake.write.files.outcomes import TaskOutcome


def reported(table: int, outcomes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The outcomes of table number `table`, as rows."""
    try:
        for outcome in outcomes:
            failpoint("before-result")
            yield outcome
            failpoint("result-returned")
    except FINAL_ERRORS as error:
        yield TaskOutcome(table, error=error).to_batch()
