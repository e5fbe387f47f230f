"""The ranges of a micro-batch grouped by bucket: all partitions of a table's bucket together.

Place in the flow: between the ranges' frame and the job, on the driver, for tables whose changes need no
shuffle. Invariant: all ranges of a bucket belong to one task, in their order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.commit.offset_summary import source_offsets
from streamlake.pipeline.kafka.bucket_owner import Intended
from streamlake.pipeline.kafka.range_frame import RangeFrame
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange
from streamlake.tasks.intake import Intake, intake_of
from streamlake.write.upsert.upsert_target import UpsertTarget


def intended(
    frame: RangeFrame, identity: CheckpointIdentity, source: KafkaSource, topics: Collection[str] | None
) -> Intended | None:
    """What the micro-batch brings to the table of `topics` (None: of all topics); None where its offsets are
    not Kafka's.
    """
    end = source_offsets(identity.end_offsets)
    if end is None:
        return None
    counts: dict[str, int] = {}
    for topic, partition in end.positions:
        if topics is None or topic in topics:
            counts[topic] = max(counts.get(topic, 0), partition + 1)
    ranges = [piece for piece in frame.ranges if piece.topic in counts]
    cores: int = frame.session.sparkContext.defaultParallelism
    return Intended(source, counts, ranges, identity.checkpoint_id, cores)


def ranges_by_bucket(
    ranges: Sequence[OffsetRange], intakes: Mapping[str, Intake], targets: Mapping[int, UpsertTarget]
) -> list[list[OffsetRange]]:
    """The ranges of the tables with these numbers, those of a table's bucket together."""
    groups: dict[tuple[int, int], list[OffsetRange]] = {}
    for piece in ranges:
        intake = intake_of(intakes, piece.topic)
        if intake is not None:
            bucket = piece.partition % targets[intake.table].buckets
            groups.setdefault((intake.table, bucket), []).append(piece)
    return [groups[which] for which in sorted(groups)]
