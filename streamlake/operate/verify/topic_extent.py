"""The offsets of a topic that are compared with a table, and what that leaves out.

A stream that is running, or has been stopped, has committed less than the topic holds. The newest snapshot
that a stream of this topic has committed shows where it ended, so the comparison ends there too. Invariant:
what is left out is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamlake.commit.marker import PIPELINE
from streamlake.commit.offset_summary import committed_offsets
from streamlake.errors import SourceError
from streamlake.pipeline.runs.upsert_options import unknown_value
from streamlake.source.cluster import KafkaCluster
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange, Partition
from streamlake.source.planner import OffsetPlanner
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.wording import counted

COMMITTED = "committed"
LATEST = "latest"
_EARLIEST_MODES = ("earliest", "latest")


@dataclass(frozen=True)
class TopicExtent:
    """The ranges to read; `name` is the source's in messages, `notes` say what the ranges leave out."""

    name: str
    ranges: tuple[OffsetRange, ...]
    notes: tuple[str, ...]


def topic_extent(
    source: KafkaSource, metadata: TableMetadata, snapshot: Snapshot | None, until: str
) -> TopicExtent:
    """The part of the topic that is due in the table at `snapshot`.

    `until`: `committed` or `latest`. Raises SourceError.
    """
    if until not in (COMMITTED, LATEST):
        raise unknown_value("until", until, (COMMITTED, LATEST))
    with KafkaCluster(source) as cluster:
        topics = cluster.topics()
        if topics.missing or not topics.partitions:
            missing = ", ".join(topics.missing) or str(source.topic_pattern)
            raise SourceError(
                f"Kafka at {source.bootstrap_servers} has no topic {missing}; correct the name"
                f"{topics.did_you_mean(topics.missing)}"
            )
        latest = cluster.latest(topics.partitions)
        first = cluster.earliest(topics.partitions)
        mode = source.settings.starting_offsets
        starts = (
            first if mode in _EARLIEST_MODES else dict(OffsetPlanner(source, cluster).initial().positions)
        )
    names = sorted({topic for topic, _ in topics.partitions})
    notes = [
        f"{topic}-{partition} begins at offset {offset}: rows of earlier records, if any, count as extra"
        for (topic, partition), offset in sorted(first.items())
        if offset > 0 and mode in _EARLIEST_MODES
    ]
    ends = latest
    committed = _committed(metadata, snapshot, names) if until == COMMITTED else None
    if until == COMMITTED and committed is None:
        notes.append(
            "no snapshot records which offsets it holds: compared with everything that is in the topic now"
        )
    if committed is not None:
        pipeline, positions = committed
        ends = {part: min(positions.get(part, starts.get(part, 0)), end) for part, end in latest.items()}
        later = sum(latest[part] - max(end, starts.get(part, 0)) for part, end in ends.items())
        if later > 0:
            notes.append(
                f"{counted(later, 'offset')} {'is' if later == 1 else 'are'} newer than what pipeline "
                f"'{pipeline}' has committed, and not compared"
            )
    ranges = tuple(
        OffsetRange(part[0], part[1], starts.get(part, first[part]), end, topics.topic_ids.get(part[0], ""))
        for part, end in sorted(ends.items())
        if end > starts.get(part, first[part])
    )
    return TopicExtent(f"topic {', '.join(names)} of {source.bootstrap_servers}", ranges, tuple(notes))


def _committed(
    metadata: TableMetadata, snapshot: Snapshot | None, topics: list[str]
) -> tuple[str, Mapping[Partition, int]] | None:
    """The pipeline that has committed from these topics last, and the offsets that it has reached."""
    for each in metadata.ancestors(None if snapshot is None else snapshot.snapshot_id):
        positions = committed_offsets(each.summary)
        if positions is not None and {topic for topic, _ in positions} & set(topics):
            return each.summary.get(PIPELINE, ""), positions
    return None
