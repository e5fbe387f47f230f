"""IcebergSink: the sink that a user passes to `foreachBatch`, and `start`, which does that in one call.

Invariant: a sink is what the user has made it; what a query finds out about its source belongs to the query.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamlake.checkpoint.heartbeat import TableUpkeep
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import Calls
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import StreamlakeError
from streamlake.maintain.background.maintenance_settings import MaintenanceSettings
from streamlake.options import named_arguments
from streamlake.pipeline.direct.direct_query import DirectQuery, DirectStream, direct_stream
from streamlake.pipeline.direct.offset_log import OffsetForm, OffsetLog
from streamlake.pipeline.direct.planned_offsets import PlannedOffsets
from streamlake.pipeline.iceberg.table_offsets import TABLE_OFFSETS, table_offsets
from streamlake.pipeline.kafka.direct_offsets import KAFKA_OFFSETS, kafka_offsets
from streamlake.pipeline.runs.direct_tables import DirectTable, write_direct
from streamlake.pipeline.runs.micro_batch import run_micro_batch
from streamlake.pipeline.runs.parallel import Ending
from streamlake.pipeline.runs.rejects import FAIL
from streamlake.pipeline.runs.split.split_job import write_split_batch
from streamlake.pipeline.runs.turns import turn
from streamlake.pipeline.sinks.arguments.frame_check import require_rows
from streamlake.pipeline.sinks.before_start import commit_before_start
from streamlake.pipeline.sinks.bound_directory import directory_at, require_own_table
from streamlake.pipeline.sinks.prepared_source import prepared_source
from streamlake.pipeline.sinks.prepared_table import prepared_table
from streamlake.pipeline.sinks.query_runs import Beside, QueryRuns
from streamlake.pipeline.sinks.shown_sinks import SHOWN, shown_sink
from streamlake.pipeline.sinks.sink_settings import (
    ChangeSettings,
    ErrorSettings,
    EvolutionSettings,
    NewTable,
    SinkSettings,
    require_row_kind,
)
from streamlake.pipeline.sinks.table_stream import TableStream
from streamlake.pipeline.sinks.while_idle import IdleTable, WhileIdle
from streamlake.pipeline.spark.query_identity import checkpoint_identity
from streamlake.pipeline.spark.start import ProcessBatch, start_query
from streamlake.pipeline.spark.worker_python import usable_session
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.write.target.job_options import JobOptions


class IcebergSink:
    """Writes the micro-batches of one streaming query to one branch of one Iceberg table, each exactly once.

    `table` is the location of a Hadoop table, or a "db.name" with `catalog`. `create` makes the table on the
    first micro-batch if there is none, with `partition_by`, `sort_by`, `format_version` (None: 3 for upserts
    by position, else 2) and `properties`. `sequence_by` names the columns that order the changes of a key;
    none of them ("none", or empty) means the order of arrival (None: the position in the database's log for
    Debezium's changes, else the order of arrival). `pipeline` names the stream across checkpoint directories.

    Every `max_continuous_empty_commits`-th empty checkpoint in a row is committed too, so that the commit
    marker in the table advances. `max_pending_checkpoints` may be staged before they are committed (None: the
    table's property `commit.max-pending-checkpoints`, else 1). `on_error` decides about records of a
    KafkaSource that cannot become rows: "fail" stops the stream, "reject" writes them to the table's rejects,
    at most `max_rejects` per checkpoint (None: any number). `schema_evolution` ("none", "add", "full"; None:
    the table's property `streamlake.schema-evolution`, else "none") sets how far the table's schema follows
    the stream's; `rename_columns` renames columns of the table once. `write_options` and `write_parallelism`:
    see JobOptions. Raises InvalidOptionError for arguments that contradict each other.

    Args:
        may_join: Whether a function for `foreachBatch` calls the sink for some micro-batches only, or from a
            later one on. Without it, a table that lacks what the query has read before is refused.
        maintenance: Keeps the table healthy beside the stream: True for what is sensible, or options by
            name, such as {"expire.schedule.commit-count": 500}. None: nothing is done.
        on_commit: Called on the driver with the CommitReceipt of every checkpoint.
    """

    @named_arguments
    def __init__(  # noqa: PLR0913
        self,
        table: str,
        catalog: str | Mapping[str, str] | None = None,
        mode: str = "append",
        *,
        create: bool = False,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        format_version: int | None = None,
        properties: Mapping[str, str] | None = None,
        key: Sequence[str] = (),
        sequence_by: Sequence[str] | None = None,
        row_kind: str | None = None,
        delete_mode: str | None = None,
        pipeline: str | None = None,
        branch: str = MAIN_BRANCH,
        max_continuous_empty_commits: int = 10,
        max_pending_checkpoints: int | None = None,
        schema_evolution: str | None = None,
        rename_columns: Mapping[str, str] | None = None,
        on_error: str = FAIL,
        max_rejects: int | None = None,
        write_options: Mapping[str, Any] | None = None,
        write_parallelism: int | None = None,
        maintenance: bool | Mapping[str, Any] | None = None,
        may_join: bool = False,
        on_commit: Callable[[CommitReceipt], None] | None = None,
    ) -> None:
        self.settings = SinkSettings(
            str(table),
            catalog,
            branch,
            pipeline,
            NewTable.of(partition_by, sort_by, format_version, properties, create=create),
            ChangeSettings.of(mode, key, sequence_by, row_kind, delete_mode),
            ErrorSettings(on_error, max_rejects),
            EvolutionSettings(schema_evolution, dict(rename_columns or {})),
            max_continuous_empty_commits,
            max_pending_checkpoints,
            JobOptions.of(write_options, write_parallelism),
            MaintenanceSettings.of(maintenance),
            Calls.QUERY if may_join else Calls.FUNCTION,
        )
        beside = Beside(self.settings.table, catalog, pipeline, self.settings.maintenance)
        self._runs = QueryRuns(on_commit, beside)

    def __repr__(self) -> str:
        known = {name: self.settings.argument(name) for name in SHOWN}
        return shown_sink(type(self).__name__, self.settings.table, known, self.receipts, self.error)

    def __getattr__(self, name: str) -> Any:
        """The arguments, under their names."""
        if name.startswith("_") or name == "settings":
            raise AttributeError(name)
        return self.settings.argument(name)

    @property
    def receipts(self) -> deque[CommitReceipt]:
        """The receipts of the last checkpoints."""
        return self._runs.receipts

    @property
    def error(self) -> BaseException | None:
        """The error that ended the last query; None while there is none."""
        return self._runs.error

    @property
    def maintained(self) -> tuple[TableUpkeep, ...]:
        """What the maintenance beside the stream does and has done."""
        return self._runs.maintained

    def stream(self, calls: Calls, written: Callable[[str, str], int] | None = None) -> TableStream:
        """The table as a query writes it that calls it so; see SinkSettings."""
        return TableStream(replace(self.settings, calls=calls, written=written), self._runs)

    def __call__(self, frame: DataFrame, checkpoint_id: int) -> None:
        """Write one micro-batch; Spark calls this. Raises the errors of `streamlake.errors`; `error` keeps
        the last since `start`.
        """
        _write(TableStream(self.settings, self._runs), frame, checkpoint_id)

    @named_arguments
    def start(
        self,
        source: DataFrame | KafkaSource | IcebergSource,
        *,
        checkpoint_location: str,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
        output_mode: str = "append",
    ) -> Any:
        """Start the query and return it (the StreamingQuery interface).

        `source` is a streaming DataFrame, or a KafkaSource or an IcebergSource for the direct path. `trigger`
        takes the arguments of `DataStreamWriter.trigger`, for example `{"availableNow": True}` or
        `{"processingTime": "10 seconds"}`.
        """
        runs, stream = self._runs, self.stream(Calls.EVERY)
        settings = stream.settings
        runs.error = None
        with runs.keeping_errors():
            given = (
                SparkSession.builder.getOrCreate()
                if isinstance(source, (KafkaSource, IcebergSource))
                else source.sparkSession
            )
            session = usable_session(given)
            directory = directory_at(session, checkpoint_location, _form(source))
            require_own_table(directory, settings, settings.opened_table)
            if not isinstance(source, (KafkaSource, IcebergSource)):
                require_rows(source.columns, settings.errors.on_error)
                require_row_kind(settings.changes, source)
                commit_before_start(session, str(checkpoint_location), directory, stream)
        location = str(checkpoint_location)
        if isinstance(source, KafkaSource):
            return _start_kafka(stream, source, location, trigger, query_name)
        if isinstance(source, IcebergSource):
            with runs.keeping_errors():
                return _start_table(stream, source, location, trigger, query_name)
        return start_query(
            partial(_write, stream),
            source,
            checkpoint_location=checkpoint_location,
            trigger=trigger,
            query_name=query_name,
            output_mode=output_mode,
            sink=runs,
        )


def _write(stream: TableStream, frame: DataFrame, checkpoint_id: int) -> None:
    """Write one micro-batch of a DataFrame's query."""
    with stream.runs.keeping_errors():
        usable_session(frame.sparkSession)
        require_rows(frame.columns, stream.settings.errors.on_error)
        run, identity = stream.opened(frame, checkpoint_identity(frame, checkpoint_id), frame.schema)
        with turn(run, identity, frame):
            receipt = run_micro_batch(run, frame, identity)
    if receipt is not None:
        stream.runs.deliver(receipt)


def _form(source: DataFrame | KafkaSource | IcebergSource) -> OffsetForm[Any] | None:
    """The form of the offsets in the log of a query on a source; None where Spark's own log has them."""
    if isinstance(source, KafkaSource):
        return KAFKA_OFFSETS
    return TABLE_OFFSETS if isinstance(source, IcebergSource) else None


def _start_kafka(
    stream: TableStream,
    source: KafkaSource,
    checkpoint_location: str,
    trigger: Mapping[str, Any] | None,
    name: str | None,
) -> DirectQuery:
    session = SparkSession.builder.getOrCreate()
    settings, known = prepared_source(stream.settings, source)
    table = DirectTable(stream.resolved(settings), known)
    direct = direct_stream(session, kafka_offsets(session, known, checkpoint_location), trigger)

    def write(frame: DataFrame, identity: CheckpointIdentity) -> Ending:
        return write_direct([table], frame, identity, direct.offsets)[0]

    process = partial(_write_direct, stream.runs, table, direct.offsets, write)
    return _started(stream.runs, direct, process, checkpoint_location, name)


def _start_table(
    stream: TableStream,
    source: IcebergSource,
    checkpoint_location: str,
    trigger: Mapping[str, Any] | None,
    name: str | None,
) -> DirectQuery:
    session = SparkSession.builder.getOrCreate()
    log = OffsetLog(session, checkpoint_location, TABLE_OFFSETS)
    prepared = prepared_table(stream, source, log.last())
    table = prepared.target
    offsets_of = table_offsets(log, prepared.table, source, prepared.kept)
    direct = direct_stream(session, offsets_of, trigger)
    stream.runs.followers[checkpoint_location] = direct.offsets.committed

    def write(frame: DataFrame, identity: CheckpointIdentity) -> Ending:
        return write_split_batch(table, frame, identity, direct.offsets)

    process = partial(_write_direct, stream.runs, table, direct.offsets, write)
    return _started(stream.runs, direct, process, checkpoint_location, name)


def _started(
    runs: QueryRuns,
    direct: DirectStream[Any],
    process: ProcessBatch,
    checkpoint_location: str,
    name: str | None,
) -> DirectQuery:
    query = start_query(
        process,
        direct.frame,
        checkpoint_location=checkpoint_location,
        trigger=direct.trigger,
        query_name=name,
        output_mode="append",
        sink=runs,
    )
    return DirectQuery(query, direct.offsets)


def _write_direct(
    runs: QueryRuns,
    table: IdleTable,
    offsets: PlannedOffsets[Any],
    write: Callable[[DataFrame, CheckpointIdentity], Ending],
    frame: DataFrame,
    checkpoint_id: int,
) -> None:
    """Write one micro-batch of a query that reads its source directly."""
    with runs.keeping_errors():
        offsets.plan(frame, checkpoint_id, WhileIdle(lambda: [table], frame, checkpoint_id))
        identity = checkpoint_identity(frame, checkpoint_id)
        offsets.confirm(identity)
        ending = write(frame, identity)
        if isinstance(ending, StreamlakeError):
            raise ending
    if ending is not None:
        runs.deliver(ending)
