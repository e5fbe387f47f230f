"""The identity of a checkpoint: it is staged, committed and recognised again under it.

Invariant: an identity is assigned when files are staged, and never reassigned when they are restored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CheckpointIdentity:
    """The identity of one checkpoint of one pipeline.

    `job_id` is the query id that Spark persists in the checkpoint directory, `checkpoint_id` the micro-batch
    id. `start_offsets` and `end_offsets` are the JSON texts of Spark's offset log, one per source; the first
    checkpoint has no start offsets.
    """

    pipeline: str
    job_id: str
    checkpoint_id: int
    start_offsets: tuple[str, ...] = ()
    end_offsets: tuple[str, ...] = ()

    @property
    def offsets_digest(self) -> str:
        """Digest of the end offsets: equal digests mean that the same rows were due up to here."""
        return offsets_digest(self.end_offsets)

    def covers_the_same(self, other: CheckpointIdentity) -> bool:
        """Whether both begin and end at the same offsets."""
        return (self.start_offsets, self.end_offsets) == (other.start_offsets, other.end_offsets)

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint_id} of pipeline '{self.pipeline}' (job {self.job_id})"


def offsets_digest(offsets: Sequence[str]) -> str:
    """The digest of a checkpoint that ends at these offsets, one canonical text per source."""
    return hashlib.sha256(json.dumps(list(offsets)).encode()).hexdigest()[:32]


def canonical_offset(text: str) -> str:
    """An offset as Spark logs it, in the one form that is compared."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text
