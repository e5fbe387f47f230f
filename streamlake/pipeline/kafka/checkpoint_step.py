"""The begin and end of a checkpoint of a KafkaSource, partition by partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.offset_summary import source_offsets
from streamlake.errors import InvalidOptionError
from streamlake.source.offsets import PartitionOffsets


@dataclass(frozen=True)
class Step:
    """`begin` and `end` are the offsets of a checkpoint. `first` are the begins of partitions that the
    checkpoint before does not know, `topic_ids` the ids of the topics at the end.
    """

    begin: PartitionOffsets
    first: PartitionOffsets
    end: PartitionOffsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(identity: CheckpointIdentity) -> Step:
        """The step of a checkpoint. Raises InvalidOptionError for a checkpoint of another kind of query."""
        end = source_offsets(identity.end_offsets)
        if end is None:
            raise InvalidOptionError(
                "the checkpoint was written by another kind of query; use another checkpoint location"
            )
        start = source_offsets(identity.start_offsets)
        begin = {} if start is None else start.positions
        return Step({**begin, **end.first}, end.first, end.positions, end.topic_ids)

    def has_records(self, topic: str, partition: int) -> bool:
        """Whether there may be records of the partition in the checkpoint."""
        return self.begin.get((topic, partition)) != self.end[topic, partition]
