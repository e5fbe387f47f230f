"""The values between the stages of a checkpoint: aimed, written, staged.

    aim    what the writer tasks get                      Aim
    write  what the tasks have written                    Written
    stage  made durable: a Committable, and what is known of it as long as the driver lives     Staged

Invariant: a stage gets what it needs from the value of the stage before it, never from the state of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamlake.checkpoint.committable import Committable
from streamlake.errors import StreamlakeError
from streamlake.pipeline.key_index.changed import Changed
from streamlake.pipeline.key_index.indexed import Indexed
from streamlake.tasks.watermarks import Newest
from streamlake.write.files.result import WriteResult
from streamlake.write.target.target import WriteTarget
from streamlake.write.upsert.upsert_target import UpsertTarget


@dataclass(frozen=True)
class Aim:
    """The target of a checkpoint's tasks, and the index that they look up old rows in (None: in none)."""

    target: WriteTarget | UpsertTarget
    base: Indexed | None = None


@dataclass(frozen=True)
class Written(Sequence[WriteResult]):
    """The results of a checkpoint's winning attempts for one table, resolved against the index `base`.

    `newest` is each partition's watermark, `passed_over` the number of records of other source tables that
    were skipped, `nulls` that of records without a value that were left out, `rejected` that of rejects.
    """

    results: tuple[WriteResult, ...] = ()
    base: Indexed | None = None
    newest: Newest = field(default_factory=dict)
    passed_over: int = 0
    nulls: int = 0
    rejected: int = 0

    @staticmethod
    def of(results: Iterable[WriteResult]) -> Written:
        """What a run has written; results alone are those of rows without any of the rest."""
        return results if isinstance(results, Written) else Written(tuple(results))

    def __getitem__(self, at: Any) -> Any:
        return self.results[at]

    def __len__(self) -> int:
        return len(self.results)


WriteEnding = Written | StreamlakeError
"""How the write of one table ended."""


@dataclass(frozen=True)
class Staged(Committable):
    """A Committable of a run that has staged it and can commit it without reading it again: `changed` is what
    its snapshot changes, resolved against the index `base`. None: not known, or in no index.
    """

    changed: Changed | None = None
    base: Indexed | None = None

    @staticmethod
    def of(committable: Committable, changed: Changed | None, base: Indexed | None) -> Staged:
        """The Committable with what is known of it."""
        durable = {name: getattr(committable, name) for name in Committable.__dataclass_fields__}
        return Staged(**durable, changed=changed, base=base)
