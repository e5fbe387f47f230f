"""Running a pipeline: its values become a query, which is watched until it ends or is asked to stop.

Place in the flow: the command line and the jobs call `run_pipeline`. It starts the same sink and the same
query that a program would build by hand.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from streamlake import clock
from streamlake.checkpoint.checkpoint_storage import checkpoint_io
from streamlake.checkpoint.heartbeat import BEAT_SECONDS, DriverState
from streamlake.commit.receipt import CommitReceipt
from streamlake.errors import InvalidOptionError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.pipeline.definition.file_words import file_words
from streamlake.pipeline.definition.heartbeats import Heartbeats
from streamlake.pipeline.definition.pipeline_file import FilesSettings, KafkaSettings, Pipeline, RateSettings
from streamlake.pipeline.definition.pipeline_source import kafka_source
from streamlake.pipeline.definition.progress import Progress, ProgressState, offsets_read
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.pipeline.sinks.sink_settings import require_row_kind
from streamlake.pipeline.sinks.tables_sink import IcebergTables
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.source.kafka_source import KafkaSource
from streamlake.spec.types.ddl import parse_ddl

POLL_SECONDS = 0.2

OnTick = Callable[[list[CommitReceipt], ProgressState], None]


class StopRequest:
    """A request to stop, set by SIGINT, SIGTERM or a program; a restart continues at the checkpoint."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.signal: signal.Signals | None = None

    @property
    def is_set(self) -> bool:
        """Whether the query is to stop."""
        return self._event.is_set()

    def set(self, cause: signal.Signals | None = None) -> None:
        """Ask the query to stop; `cause` is the signal that asked for it."""
        self.signal = cause
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait until a stop is requested, `seconds` at most; True where it is."""
        return self._event.wait(seconds)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """A StopRequest that SIGINT and SIGTERM set while the block runs.

    Only for the main thread, and after the Spark session has started, because Spark installs a SIGINT handler
    of its own.
    """
    request = StopRequest()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {
        number: signal.signal(number, lambda got, _: request.set(signal.Signals(got))) for number in signals
    }
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class PipelineRun:
    """A pipeline that is checked as far as possible without Spark: its sink and what it reads exist.

    Raises InvalidOptionError and FeatureUnsupportedError on construction.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.progress = Progress()
        source = pipeline.source
        if pipeline.sink.is_many and not isinstance(source, KafkaSettings):
            raise InvalidOptionError(
                f"sink.table is '{pipeline.sink.table}': only a kafka source goes into many tables; name one "
                "table"
            )
        sink: type[IcebergSink] | type[IcebergTables] = (
            IcebergTables if pipeline.sink.is_many else IcebergSink
        )
        with file_words():
            self.sink: Any = sink(
                pipeline.sink.table,
                pipeline=pipeline.name,
                on_commit=self._on_commit,
                maintenance=pipeline.maintenance,
                **pipeline.sink.arguments,
            )
        self._direct: KafkaSource | IcebergSource | None = None
        if isinstance(source, KafkaSettings | IcebergSource):
            self._direct = kafka_source(source) if isinstance(source, KafkaSettings) else source
        if isinstance(self.sink, IcebergSink):
            with file_words():
                require_row_kind(self.sink.settings.changes, self._direct)
        catalog = pipeline.sink.arguments.get("catalog")
        self.heartbeats = Heartbeats(lambda: checkpoint_io(pipeline.checkpoint, catalog), pipeline.checkpoint)
        """The driver's sign of life; the run lies inside this context manager."""
        self.heartbeats.maintained = lambda: self.sink.maintained

    def _on_commit(self, receipt: CommitReceipt) -> None:
        self.progress.add(receipt)
        self.heartbeats.finished(receipt)

    def start(self, spark: SparkSession) -> Any:
        """Start the query (StreamingQuery interface). Raises InvalidOptionError where Spark refuses it."""
        self.progress.begin()
        try:
            with file_words():
                return self.sink.start(
                    self._direct if self._direct is not None else open_stream(spark, self.pipeline),
                    checkpoint_location=self.pipeline.checkpoint,
                    trigger=self.pipeline.trigger,
                    query_name=self.pipeline.name,
                )
        except (AnalysisException, IllegalArgumentException, ParseException) as error:
            raise InvalidOptionError(f"Spark refuses the pipeline: {first_line(error)}") from error

    def watch(self, query: Any, stop: StopRequest, on_tick: OnTick) -> ProgressState:
        """Report to `on_tick` until the query ends or `stop` is set. Raises the query's error."""
        if isinstance(self._direct, KafkaSource):
            offsets = query.offsets
            self.progress.follow(lambda: offsets_read(offsets.first, offsets.planned, offsets.target))
        asked = -BEAT_SECONDS
        while query.isActive and not stop.wait(POLL_SECONDS):
            on_tick(self.progress.take(), self.progress.state)
            if clock.monotonic() - asked >= BEAT_SECONDS:
                asked = clock.monotonic()
                self.heartbeats.waits(not query.status["isTriggerActive"])
        if stop.is_set:
            self.heartbeats.end(DriverState.STOPPED)
            query.stop()
        else:
            with file_words():
                query.awaitTermination()
        on_tick(self.progress.take(), self.progress.state)
        return self.progress.state


def run_pipeline(
    pipeline: Pipeline, spark: SparkSession, *, on_tick: OnTick = lambda receipts, state: None
) -> ProgressState:
    """Run a pipeline to its end, or until SIGINT or SIGTERM. Raises the error that ended it."""
    run = PipelineRun(pipeline)
    with run.heartbeats, stop_on_signals() as stop:
        return run.watch(run.start(spark), stop, on_tick)


def open_stream(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """The streaming DataFrame of a `files` or `rate` source, with `select` and `where` applied.

    Raises InvalidOptionError for other sources, and for files without a schema that could be inferred.
    """
    source = pipeline.source
    if isinstance(source, FilesSettings):
        frame = _files(spark, source)
    elif isinstance(source, RateSettings):
        reader = spark.readStream.format("rate").option("rowsPerSecond", source.rows_per_second)
        frame = reader.options(**source.options).load()
    else:
        raise InvalidOptionError("this source is read by the sink itself, not as a DataFrame")
    if pipeline.where:
        frame = frame.where(pipeline.where)
    return frame.selectExpr(*pipeline.select) if pipeline.select else frame


def _files(spark: SparkSession, source: FilesSettings) -> DataFrame:
    options = dict(source.options)
    if source.max_files_per_trigger is not None:
        options["maxFilesPerTrigger"] = str(source.max_files_per_trigger)
    if source.format in ("json", "csv") and "mode" not in {name.lower() for name in options}:
        # By default Spark turns a line that it cannot read into nulls, without a message.
        options["mode"] = "FAILFAST"
    path = str(Path(source.path).absolute()) if "://" not in source.path else source.path
    if source.schema is not None:
        schema = from_arrow_schema(schema_to_arrow(parse_ddl(source.schema)))
    else:
        try:
            schema = spark.read.format(source.format).options(**source.options).load(path).schema
        except AnalysisException as error:
            raise InvalidOptionError(
                f"source.files: no schema is given and none can be inferred from {path}: "
                f"{first_line(error)}. Give a schema, or put a first file there"
            ) from error
    return spark.readStream.schema(schema).format(source.format).options(**options).load(path)


def first_line(error: BaseException) -> str:
    """The first line of a Spark error: the readable one."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
