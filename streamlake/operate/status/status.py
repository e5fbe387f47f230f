"""The status of a pipeline: what its tables hold, what the broker has, what its directory records.

`streamlake status` shows it, once or repeatedly. The pipeline does nothing for it, and nothing is changed.
Invariant: the lag is counted from what is committed to the tables, never from what Spark or a consumer has
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from streamlake.catalog.open import CatalogOption, open_table
from streamlake.checkpoint.heartbeat import Heartbeat
from streamlake.checkpoint.spark_directory import SparkDirectory
from streamlake.commit.offset_summary import kafka_offsets, source_offsets
from streamlake.errors import InvalidOptionError, SourceError, StreamlakeError
from streamlake.operate.checkpoint_directory import started_directory
from streamlake.operate.read_position import place_in_words
from streamlake.operate.status.committed_offsets import committed_offsets_of
from streamlake.operate.status.driver_status import DriverStatus, driver_status, read_heartbeat
from streamlake.operate.status.source_lag import SourceLag, committed_offset, source_lag
from streamlake.operate.status.table_status import StatusTarget, TableStatus, table_status
from streamlake.pipeline.definition.pipeline_file import KafkaSettings, Pipeline
from streamlake.pipeline.definition.pipeline_source import kafka_source, with_short_timeout
from streamlake.pipeline.definition.pipeline_tables import pipeline_tables
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_from_text
from streamlake.pipeline.sinks.quarantine import QUARANTINE_PATH, quarantine_from_text
from streamlake.source.cluster import KafkaCluster
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.kafka_source import KafkaSource
from streamlake.source.offsets import Partition, PartitionOffsets
from streamlake.spec.metadata.snapshot import MAIN_BRANCH


@dataclass(frozen=True)
class PartitionLag:
    """One partition.

    `committed` is the next offset that the tables need (None: nothing of it is committed). `end` is the
    offset after the last readable record (None: the broker did not say, or has no such partition).
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None


@dataclass(frozen=True)
class PipelineStatus:
    """The status of a pipeline.

    `lag` is the sum over the partitions, of a table that is read (`source`) the number of snapshots; None
    where it is unknown. `problems` are errors in reading the status, and what keeps the stream from going on.
    `notes` are worth knowing. `driver` is None where there is no heartbeat. `seconds_left` is how long the
    lag takes at the pace of the last commits (None: not known, or nothing runs).
    """

    name: str | None
    tables: tuple[TableStatus, ...]
    partitions: tuple[PartitionLag, ...] = ()
    lag: int | None = None
    source: SourceLag | None = None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    driver: DriverStatus | None = None
    seconds_left: float | None = None


class StatusReader:
    """Reads the status of one pipeline any number of times; holds the connection to the broker.

    `targets` gives the tables for these topics, with those that rows have named (see `discovered_tables`).
    `source` has the topics, or is the table that is read; `checkpoint` is the checkpoint directory; both may
    be unknown. `catalog` has the storage settings of the directory.
    """

    def __init__(
        self,
        targets: Callable[[Sequence[str], Mapping[str, str]], Sequence[StatusTarget]],
        source: KafkaSource | IcebergSource | None = None,
        checkpoint: str | None = None,
        name: str | None = None,
        catalog: CatalogOption = None,
    ) -> None:
        self._targets = targets
        self._checkpoint = checkpoint
        self._catalog = catalog
        self._name = name
        topics = source if isinstance(source, KafkaSource) else None
        self._cluster = None if topics is None else KafkaCluster(with_short_timeout(topics))
        self._table = source if isinstance(source, IcebergSource) else None

    def __enter__(self) -> StatusReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def read(self) -> PipelineStatus:
        """The status now.

        What broker or directory do not answer becomes a problem or a note. Raises the errors of opening a
        table.
        """
        notes: list[str] = []
        problems: list[str] = []
        directory = self._directory(notes)
        try:
            ends, begins = self._extent(directory, problems)
        except SourceError as error:
            ends, begins = None, {}
            problems.append(str(error))
        job_id = None if directory is None else directory.job_id
        beat = self._heartbeat()
        named = None if directory is None else directory.text(TABLES_PATH)
        targets = self._targets(
            _topics(ends, directory), {} if named is None else tables_from_text(named, TABLES_PATH)
        )
        since_ms = None if beat is None else beat.started_ms
        tables = tuple(table_status(target, job_id, since_ms) for target in targets)
        if self._table is not None:
            at = committed_offset(targets[0], tables[0], directory, problems)
            behind = source_lag(self._table, at, notes, problems)
            return PipelineStatus(
                self._shown_name(tables),
                tables,
                lag=behind.snapshots,
                source=behind,
                notes=tuple(notes),
                problems=tuple(problems),
                driver=None if beat is None else driver_status(beat, behind.snapshots),
            )
        committed = committed_offsets_of(targets, tables, directory, notes)
        read = [each.source_offset for each in tables if each.source_offset is not None]
        if read:
            notes.append(
                f"a stream of a table (uuid {read[0].table_uuid}) writes it, and is there "
                f"{place_in_words(read[0].position)}; ask with its pipeline file for the lag"
            )
        elif committed is None and any(each.checkpoint_id is not None for each in tables):
            notes.append("neither the tables nor the checkpoint directory record which offsets are committed")
        partitions = _lags(committed or {}, ends, begins, notes, problems)
        if directory is not None:
            problems += _quarantined(directory, committed or {})
        lags = [each.lag for each in partitions]
        lag = sum(each or 0 for each in lags) if lags and None not in lags else None
        driver = None if beat is None else driver_status(beat, lag)
        return PipelineStatus(
            self._shown_name(tables),
            tables,
            partitions,
            lag=lag,
            notes=tuple(notes),
            problems=tuple(problems),
            driver=driver,
            seconds_left=_seconds_left(lag, tables) if driver is None or driver.runs else None,
        )

    def _shown_name(self, tables: Sequence[TableStatus]) -> str | None:
        return self._name or next((each.pipeline for each in tables if each.pipeline), None)

    def _heartbeat(self) -> Heartbeat | None:
        if self._checkpoint is None:
            return None
        try:
            return read_heartbeat(self._checkpoint, self._catalog)
        except StreamlakeError:
            # Why the directory cannot be read is a note already.
            return None

    def _directory(self, notes: list[str]) -> SparkDirectory | None:
        if self._checkpoint is None:
            return None
        try:
            directory = started_directory(self._checkpoint, self._catalog)
        except StreamlakeError as error:
            notes.append(str(error))
            return None
        if directory is None:
            notes.append(f"no query has been started from {self._checkpoint} yet")
        return directory

    def _extent(
        self, directory: SparkDirectory | None, problems: list[str]
    ) -> tuple[Mapping[Partition, int] | None, Mapping[Partition, int]]:
        """The end offsets of all partitions that are to be read, and their first offsets.

        A topic with another id than the directory has recorded becomes a problem.
        """
        if self._cluster is None:
            return None, {}
        found = self._cluster.topics()
        if found.missing:
            raise SourceError(
                f"Kafka has no topic {', '.join(found.missing)}, or does not show it to this user"
                f"{found.did_you_mean(found.missing)}"
            )
        if directory is not None:
            problems += _recreated(directory, found.topic_ids)
        return self._cluster.latest(found.partitions), self._cluster.earliest(found.partitions)


def status_of(pipeline: Pipeline) -> StatusReader:
    """The reader for a pipeline file. Raises InvalidOptionError."""
    source = pipeline.source

    def targets(topics: Sequence[str], named: Mapping[str, str]) -> list[StatusTarget]:
        return [
            StatusTarget(
                each.table,
                each.arguments.get("catalog"),
                each.arguments.get("branch", MAIN_BRANCH),
                pipeline.name,
            )
            for each in pipeline_tables(pipeline, topics, named)
        ]

    read: KafkaSource | IcebergSource | None = source if isinstance(source, IcebergSource) else None
    return StatusReader(
        targets,
        kafka_source(source) if isinstance(source, KafkaSettings) else read,
        pipeline.checkpoint,
        pipeline.name,
        pipeline.sink.arguments.get("catalog"),
    )


def status_of_table(
    table: str,
    catalog: CatalogOption = None,
    *,
    branch: str = MAIN_BRANCH,
    pipeline: str | None = None,
    bootstrap_servers: str | None = None,
    topics: Iterable[str] = (),
    options: Mapping[str, str] | None = None,
) -> StatusReader:
    """The reader for a table without its pipeline file.

    The topics default to those in the table's last snapshot. Raises InvalidOptionError where they are not
    known, and TableNotFoundError.
    """
    open_table(table, catalog)
    target = StatusTarget(table, catalog, branch, pipeline)
    if bootstrap_servers is None:
        return StatusReader(lambda topics, named: [target])
    names = list(topics)
    if not names:
        offsets = table_status(target).offsets
        names = sorted({topic for topic, _ in offsets or {}})
    if not names:
        raise InvalidOptionError(f"{table} does not record which topics it holds; name them with --topic")
    source = KafkaSource(bootstrap_servers, names, options=dict(options or {}))
    return StatusReader(lambda topics, named: [target], source)


def _seconds_left(lag: int | None, tables: Sequence[TableStatus]) -> float | None:
    newest = max(tables, key=lambda each: each.committed_ms or 0, default=None)
    pace = None if newest is None else newest.offsets_per_second
    return None if lag is None or not pace else lag / pace


def _topics(ends: Iterable[Partition] | None, directory: SparkDirectory | None) -> list[str]:
    """The topics that the broker has, and those that the pipeline has already read."""
    logged = () if directory is None else directory.end_offsets(directory.last_planned) or ()
    return sorted({topic for topic, _ in (*(ends or ()), *(kafka_offsets(logged) or ()))})


def _recreated(directory: SparkDirectory, topic_ids: Mapping[str, str]) -> list[str]:
    """The topics that are others by now than those that the query has read."""
    known = source_offsets(directory.end_offsets(directory.last_planned) or ())
    before = {} if known is None else known.topic_ids
    return [
        f"{topic} was deleted and created again (its id was {before[topic]}, and is {now_id}): the stream "
        "stops there, unless fail-on-data-loss is false; read the new topic from a new checkpoint directory"
        for topic, now_id in sorted(topic_ids.items())
        if before.get(topic, now_id) != now_id
    ]


def _quarantined(directory: SparkDirectory, committed: PartitionOffsets) -> list[str]:
    """The quarantined tables, and what they lack."""
    text = directory.text(QUARANTINE_PATH)
    if text is None:
        return []
    problems_found = []
    for name, entry in quarantine_from_text(text, f"{directory.location}/{QUARANTINE_PATH}").items():
        lacking = sum(piece.size for piece in entry.missed(committed))
        problems_found.append(
            f"{name} has been in quarantine since checkpoint {entry.since} and lacks {lacking:,} offsets; "
            f"the next start tries again: {entry.error}"
        )
    return problems_found


def _lags(
    committed: PartitionOffsets,
    ends: Mapping[Partition, int] | None,
    begins: Mapping[Partition, int],
    notes: list[str],
    problems: list[str],
) -> tuple[PartitionLag, ...]:
    found = []
    for part in sorted({*committed, *(ends or {})}):
        here, end, begin = committed.get(part), (ends or {}).get(part), begins.get(part, 0)
        named = f"{part[0]}-{part[1]}"
        if end is None and ends is not None:
            problems.append(
                f"{named}, committed up to offset {here}, is no longer among the partitions to read"
            )
        if here is not None and end is not None and here > end:
            problems.append(
                f"{named} ends at offset {end}, before the committed offset {here}: the topic was deleted "
                "and created again, or its log cut"
            )
        if here is not None and end is not None and here < begin:
            problems.append(
                f"{named}: offsets {here} to {begin - 1} are no longer in Kafka and were never committed; "
                "retention has removed them"
            )
        lag = None if end is None else max(0, end - max(begin, begin if here is None else here))
        found.append(PartitionLag(part[0], part[1], here, end, lag))
    if ends is not None and not found:
        notes.append("there are no partitions to read yet")
    return tuple(found)
