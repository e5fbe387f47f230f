"""The outcome that a task sends to the driver for one table: its WriteResult, or an error no retry repairs.

An error of a class that a second attempt would meet again (a row that does not fit, a record that cannot be
decoded, a wrong option) travels as a value: the task ends, Spark does not retry it in vain, and the driver
raises that error. Invariant: one row per outcome, of one schema, whatever runs the task.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamlake.errors import StreamlakeError
from streamlake.write.files.result import WriteResult

OUTCOMES = pa.schema(
    [
        pa.field("table", pa.int32(), nullable=False),
        pa.field("result", pa.binary()),
        pa.field("error", pa.binary()),
        pa.field("newest", pa.binary()),
    ]
)
"""An Outcome as a row: `result` and `error` as bytes."""
OUTCOMES_DDL = "table int not null, result binary, error binary, newest binary"
ONLY_TABLE = 0
"""The number of the table where a job writes one."""


@dataclass(frozen=True)
class TaskOutcome:
    """What a task says about table number `table`. `result` is a WriteResult as bytes; `newest`: see
    Watermarks.
    """

    table: int
    result: bytes | None = None
    error: StreamlakeError | None = None
    newest: bytes | None = None

    def to_batch(self) -> pa.RecordBatch:
        """The row on its way to the driver."""
        arrays = [
            pa.array([self.table], pa.int32()),
            pa.array([self.result], pa.binary()),
            pa.array([None if self.error is None else pickle.dumps(self.error)], pa.binary()),
            pa.array([self.newest], pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=OUTCOMES)

    @staticmethod
    def of(row: Sequence[Any]) -> TaskOutcome:
        """The outcome in a row that has arrived on the driver."""
        table, result, error, newest = row
        return TaskOutcome(
            table,
            None if result is None else bytes(result),
            None if error is None else pickle.loads(bytes(error)),
            None if newest is None else bytes(newest),
        )


def results_of(outcomes: Iterable[TaskOutcome]) -> list[WriteResult]:
    """The results among outcomes. Raises DataInvalidError for one of another version."""
    return [WriteResult.from_bytes(each.result) for each in outcomes if each.result is not None]
