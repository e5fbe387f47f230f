"""The splits of a micro-batch, passed to its tasks together with their code.

Place in the flow: after `table_offsets`, which plans them on the driver. Each task unpickles its own splits
alone, however many there are. Invariant: splits keep their order; an earlier one is in an earlier task, or
earlier in the same one.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamlake.tasks.intake import Batches
from streamlake.tasks.split_tasks import SplitTask


class SplitFrame:
    """Splits as the input of tasks: one split per task, or neighbours together in at most `most` tasks."""

    def __init__(self, session: SparkSession, splits: Sequence[Any], most: int | None = None) -> None:
        self.session = session
        self._groups = tuple(pickle.dumps(group) for group in grouped(splits, most))

    def __len__(self) -> int:
        return len(self._groups)

    def tasks(self, task: SplitTask, ddl: str) -> DataFrame:
        """The rows, with the schema `ddl`, that `task` makes from splits."""
        count = max(len(self._groups), 1)
        numbers = self.session.range(0, len(self._groups), 1, count)
        return numbers.mapInArrow(_OfGroups(task, self._groups), ddl)


def grouped(splits: Sequence[Any], most: int | None) -> list[tuple[Any, ...]]:
    """The splits in groups of neighbours, at most `most` of them (None: one split each)."""
    count = len(splits) if most is None else min(most, len(splits))
    bounds = [len(splits) * at // count for at in range(count + 1)] if count else [0]
    return [tuple(splits[low:high]) for low, high in pairwise(bounds)]


@dataclass(frozen=True)
class _OfGroups:
    """Gives a task the splits for the group numbers in its batches."""

    task: SplitTask
    groups: tuple[bytes, ...]

    def __call__(self, batches: Batches) -> Batches:
        return self.task(
            split
            for batch in batches
            for number in batch.column(0).to_pylist()
            for split in pickle.loads(self.groups[number])
        )
