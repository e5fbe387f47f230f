"""Checks whether topics can be read: brokers, topics, permissions, offsets, and records that decode.

It reads a handful of records per topic, as a task would. Nothing is started and no offset is kept anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from streamlake.decode.cdc.debezium.missing_documents import lacks_documents
from streamlake.decode.cdc.debezium.null_defaults import columns_with_defaults
from streamlake.decode.cdc.debezium.nulled_values import nulled_columns
from streamlake.decode.cdc.debezium.old_keys import columns_without_old_values
from streamlake.errors import DecodeError, StreamlakeError
from streamlake.operate.check.check_points import Points
from streamlake.operate.check.record_check import RECORDS, SampledRecords, warn_of_dropped
from streamlake.pipeline.runs.filtered_tables import unmet
from streamlake.source.cluster import Cluster, Topics
from streamlake.source.fetcher import fetch_range
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import OffsetRange, SourceOffsets
from streamlake.source.planner import OffsetPlanner
from streamlake.tasks.direct_reader import parts_read, row_decoder
from streamlake.tasks.record_screen import RejectRules

KAFKA = "kafka"
OFFSETS = "offsets"
_TOPICS_SAMPLED = 10
_RECORDS_SAMPLED = 50
_OUTAGE_RETRY_MS = 15_000
_SHOWN = 8


def check_topics(source: KafkaSource, cluster: Cluster, points: Points) -> Topics | None:
    """Check that brokers answer and the topics exist; None when nothing more can be checked."""
    try:
        topics = cluster.topics()
    except StreamlakeError as error:
        points.error(KAFKA, str(error))
        return None
    for name in topics.missing:
        points.error(
            KAFKA,
            f"there is no topic {name}, or this user may not see it; create it or correct the name"
            f"{topics.did_you_mean([name])}",
        )
    counts = Counter(topic for topic, _ in topics.partitions)
    if counts:
        points.right(KAFKA, f"{source.bootstrap_servers} answers; {_named_topics(counts)}")
    elif not topics.missing:
        points.warning(
            KAFKA, f"no topic matches '{source.topic_pattern}' yet; topics created later will be read"
        )
    return topics if counts else None


def check_offsets(source: KafkaSource, cluster: Cluster, known: SourceOffsets | None, points: Points) -> None:
    """Check that the records that are due can still be read.

    `known` are the offsets of the checkpoint directory; None for a new one.
    """
    planner = OffsetPlanner(source, cluster)
    try:
        start = planner.initial() if known is None else known
        end = planner.latest(start)
        due = sum(piece.size for piece in planner.ranges(start, end))
    except StreamlakeError as error:
        points.error(OFFSETS, str(error))
        return
    where = (
        f"a new checkpoint directory begins at starting-offsets={source.settings.starting_offsets}"
        if known is None
        else "the checkpoint directory continues where it stopped"
    )
    points.right(OFFSETS, f"{where}; {due:,} offsets are due")


def check_records(
    source: KafkaSource,
    cluster: Cluster,
    topics: Topics,
    key: Sequence[str],
    points: Points,
    *,
    rejects: bool = False,
    sources: Mapping[str, str] | None = None,
    rules: RejectRules | None = None,
) -> None:
    """Check that this user may read, and that the newest records decode to the columns of `source`.

    The schema of `source` is known. With `rejects`, records that do not decode are quarantined and are only a
    warning, unless these are all. `rules` are those of the table; None where it follows its stream.
    """
    retrying = replace(source, options={**source.options, "fetch-timeout-ms": str(_OUTAGE_RETRY_MS)})
    try:
        row_decoder(retrying, key)
        pieces = _newest(cluster, topics)
    except StreamlakeError as error:
        points.error(RECORDS, str(error))
        return
    sample = SampledRecords(rules)
    records: list[tuple[bytes | None, bytes]] = []
    named: Counter[str] = Counter()
    for piece in pieces:
        decoder = row_decoder(retrying, key, topic=piece.topic, sources=sources)
        try:
            for raw in fetch_range(retrying, piece, parts_read(retrying)):
                named.update(sample.decode(decoder, raw).named)
                pairs = zip(raw.column("key").to_pylist(), raw.column("value").to_pylist(), strict=True)
                records += [(each, value) for each, value in pairs if value is not None]
        except DecodeError as error:
            report = points.warning if rejects else points.error
            report(
                RECORDS, f"a record cannot be decoded{', and would be rejected' if rejects else ''}: {error}"
            )
        except StreamlakeError as error:
            points.error(RECORDS, str(error))
        else:
            continue
        return
    sample.tell(points, rejects=rejects)
    values = [value for _, value in records]
    if rules is not None:
        warn_of_dropped(retrying, values, points)
    _warn_of_nulls(retrying, values, points)
    _warn_of_old_keys(retrying, records, key, points)
    _warn_of_defaults(retrying, values, points)
    for text in unmet(retrying.settings.source_tables, named).values():
        points.warning(RECORDS, text)
    if lacks_documents(retrying.format, values, retrying.settings.decode):
        points.error(
            RECORDS,
            "no update among the newest records has its document, so none of them would change the table. "
            "Set the connector's capture.mode to change_streams_update_full; if documents are deleted so "
            "soon that this is right, set the source option debezium.capture-mode=change_streams_update_full",
        )
    if sample.read and not sample.wrong:
        points.right(RECORDS, f"the newest {sample.read:,} records can be read and decode ({source.format})")
    elif not sample.read:
        points.unknown(RECORDS, "there is no record to try the format on")


def _warn_of_nulls(source: KafkaSource, values: Sequence[bytes], points: Points) -> None:
    nulled = nulled_columns(source.format, values, source.settings.decode, source.table_schema)
    if nulled:
        points.warning(
            RECORDS,
            "PostgreSQL leaves values that are stored out of line (TOASTed) out of updates, and for the "
            f"types of {', '.join(nulled)} Debezium then sends null, which overwrites the value. Set "
            "REPLICA IDENTITY FULL for the table in PostgreSQL (alter table ... replica identity full), or "
            "make sure that their values stay short",
        )


def _warn_of_old_keys(
    source: KafkaSource, records: Sequence[tuple[bytes | None, bytes]], key: Sequence[str], points: Points
) -> None:
    unknown = columns_without_old_values(source.format, records, source.settings.decode, key)
    if unknown:
        points.warning(
            RECORDS,
            f"the key column {', '.join(unknown)} is not in the message key, and updates come without the "
            "row before: an update that changes it, and every delete, leaves the old row in the table. Set "
            "REPLICA IDENTITY FULL for the table in PostgreSQL (alter table ... replica identity full), or "
            "take the database's primary key as sink.key",
        )


def _warn_of_defaults(source: KafkaSource, values: Sequence[bytes], points: Points) -> None:
    if not source.format.startswith("debezium") or not source.format.endswith("-json"):
        return
    columns = columns_with_defaults(values, source.table_schema.column_names)
    if columns:
        points.warning(
            RECORDS,
            f"{', '.join(columns)} may be null in the database and comes with its default, and none of the "
            "newest records has null there: Kafka Connect's JsonConverter sends the default in place of "
            "null. Set value.converter.replace.null.with.default=false in the connector",
        )


def _newest(cluster: Cluster, topics: Topics) -> Iterable[OffsetRange]:
    """The end of the longest partition of each of the first topics."""
    ends, begins = cluster.latest(topics.partitions), cluster.earliest(topics.partitions)
    longest: dict[str, tuple[int, int]] = {}
    for topic, partition in topics.partitions:
        size = ends.get((topic, partition), 0) - begins.get((topic, partition), 0)
        longest[topic] = max(longest.get(topic, (0, partition)), (size, partition))
    for topic, (size, partition) in list(longest.items())[:_TOPICS_SAMPLED]:
        end = ends.get((topic, partition), 0)
        if size > 0:
            yield OffsetRange(topic, partition, max(end - _RECORDS_SAMPLED, end - size), end)


def _named_topics(counts: Counter[str]) -> str:
    shown = ", ".join(f"{topic} ({count})" for topic, count in list(counts.items())[:_SHOWN])
    more = f" and {len(counts) - _SHOWN} more" if len(counts) > _SHOWN else ""
    return f"topics and their partitions: {shown}{more}"
