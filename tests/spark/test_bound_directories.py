"""A checkpoint directory and its table are bound: neither goes on without the other, and nobody writes rows again unawares."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamlake import IcebergSink, create_table, load_table
from streamlake.cli.main import main
from streamlake.errors import InvalidOptionError, LineageError, StreamlakeError
from streamlake.pipeline.runs.lineage.checkpoint_table import CheckpointTable
from tests.helpers.landing import DDL, Landing
from tests.spark.test_sink_lineage import ids, recover, run

Rows = list[int]


@pytest.fixture
def landing(spark: SparkSession, tmp_path: Path) -> Landing:
    return Landing(spark, tmp_path)


@pytest.fixture
def other(landing: Landing, tmp_path: Path) -> str:
    """The directory has come some way with the landing's table; another one is at hand."""
    for _ in range(2):
        landing.land()
    landing.run(landing.sink())
    location = str(tmp_path / "other")
    create_table(location, DDL)
    return location


def refused(landing: Landing, sink: IcebergSink, match: str) -> str:
    with pytest.raises(LineageError, match=match) as refusal:
        landing.run(sink)
    return str(refusal.value)


@pytest.mark.parametrize("new_rows", [False, True])
def test_a_directory_does_not_go_on_into_another_table(landing: Landing, other: str, new_rows: bool):
    """Also when there is nothing to do."""
    if new_rows:
        landing.land()
    message = refused(landing, IcebergSink(other), "has done checkpoints 0 to 1 without")
    assert landing.location in message
    assert load_table(other).snapshots == ()
    recover(message, "--rewind-to=-1")
    landing.run(IcebergSink(other))
    assert ids(other) == list(range(landing.rows))
    # The first table is not what the directory goes on from any more.
    refused(landing, landing.sink(), "directory")
    assert landing.ids() == list(range(200))


@pytest.mark.parametrize("left", [b"", b'v1\n{"batchWatermarkMs":0', bytes(40)])
def test_a_plan_that_a_loss_of_power_left_torn_is_made_again(landing: Landing, other: str, left: bytes):
    """It stands in nobody's way, and was not committed yet."""
    landing.land()
    plans = Path(landing.checkpoint, "offsets")
    (plans / "2").write_bytes(left)
    landing.run(landing.sink())
    assert landing.ids() == list(range(300))
    assert (plans / "2").read_bytes().startswith(b"v1")


@pytest.mark.parametrize("left", [b"", b'v1\n{"nextBatch', bytes(29)])
def test_a_torn_entry_of_the_commit_log_is_made_again(landing: Landing, other: str, left: bytes):
    """The table knows that it has the checkpoint; Spark alone stops, until a command or `sink.start` removes the entry."""
    landing.land()
    done = Path(landing.checkpoint, "commits")
    (done / "1").write_bytes(left)
    (done / ".1.crc").unlink(missing_ok=True)
    if left:
        with pytest.raises(StreamingQueryException):
            run(landing, landing.sink())
        words = ["recover", landing.location, "--checkpoint-location", landing.checkpoint, "--remove-torn"]
        with pytest.raises(SystemExit) as ended:
            main([*words, "--yes"])
        assert ended.value.code == 0
        run(landing, landing.sink())
    else:
        landing.run(landing.sink())
    assert landing.ids() == list(range(300))
    assert (done / "1").read_bytes().startswith(b"v1")


def test_a_table_that_is_not_there_is_not_made_for_a_directory_that_has_come_some_way(
    landing: Landing, other: str
):
    shutil.rmtree(other)
    landing.land()
    refused(landing, IcebergSink(other, create=True), "without")
    assert not Path(other).exists()
    with pytest.raises(StreamingQueryException, match="without"):
        run(landing, IcebergSink(other, create=True))
    assert not Path(other).exists()


def test_a_directory_that_was_bound_to_another_table_leaves_no_hole_in_the_first(
    landing: Landing, other: str
):
    recover(refused(landing, IcebergSink(other), "without"), "--adopt")
    landing.land()
    landing.run(IcebergSink(other))
    assert ids(other) == list(range(200, 300))
    landing.land()
    message = refused(landing, landing.sink(), "which holds its checkpoints up to 1")
    assert other in message
    recover(message, "--rewind-to=1")
    landing.run(landing.sink())
    assert landing.ids() == list(range(400))


def test_what_went_by_may_stay_out(landing: Landing, other: str):
    recover(refused(landing, IcebergSink(other), "without"), "--adopt")
    landing.land()
    landing.run(IcebergSink(other))
    landing.land()
    recover(refused(landing, landing.sink(), "which holds its checkpoints up to 1"), "--adopt")
    landing.run(landing.sink())
    assert landing.ids() == [*range(200), *range(300, 400)]


def test_a_sink_of_somebody_elses_leaves_no_hole(landing: Landing, other: str):
    landing.land()
    run(landing, lambda frame, checkpoint_id: None)
    landing.land()
    recover(refused(landing, landing.sink(), "or another sink"), "--rewind-to=1")
    landing.run(landing.sink())
    assert landing.ids() == list(range(400))


def test_a_function_that_calls_another_sink_is_refused_unless_it_says_so(landing: Landing, other: str):
    landing.land()
    with pytest.raises(StreamingQueryException, match="may_join"):
        run(landing, IcebergSink(other))
    assert load_table(other).snapshots == ()
    first, second = landing.sink(), IcebergSink(other, may_join=True)

    def both(frame: DataFrame, checkpoint_id: int) -> None:
        first(frame, checkpoint_id)
        second(frame, checkpoint_id)

    run(landing, both)
    assert landing.ids() == list(range(300))
    assert ids(other) == list(range(200, 300))


def test_a_function_may_leave_out_micro_batches_without_rows(landing: Landing):
    sink = landing.sink()

    def process(frame: DataFrame, checkpoint_id: int) -> None:
        if checkpoint_id in (1, 3):
            sink(frame, checkpoint_id)

    for _ in range(4):
        landing.land()
        run(landing, process)
    assert landing.ids() == [*range(100, 200), *range(300, 400)]


def test_micro_batches_without_rows_are_no_hole(landing: Landing):
    for _ in range(3):
        landing.land()
        landing.run(landing.sink(), landing.frame().where("id < 100"))
    landing.land()
    landing.run(landing.sink(), landing.frame().where("id < 100 or id >= 300"))
    assert landing.ids() == [*range(100), *range(300, 400)]


def test_a_directory_of_an_older_version_is_bound(landing: Landing, monkeypatch: pytest.MonkeyPatch):
    """It has no note, or one that does not say what went by; then it has one that does."""
    write = CheckpointTable.write
    for _ in range(2):
        landing.land()
        landing.run(landing.sink())
        [note] = Path(landing.checkpoint, "streamlake").glob("*.json")
        note.unlink()
    landing.land()
    landing.run(landing.sink())
    assert write is CheckpointTable.write
    assert '"passed-id": 1' in note.read_text()
    assert landing.ids() == list(range(300))


# Without a name


def starts(landing: Landing, **options: Any) -> None:
    """The stream is started with a new checkpoint directory."""
    landing.checkpoint += "-new"
    landing.run(landing.sink(**options))


def test_a_stream_without_a_name_is_not_written_again(landing: Landing):
    landing.land()
    landing.run(landing.sink())
    for _ in range(2):
        with pytest.raises(LineageError, match=r"pipeline='\.\.\.'"):
            starts(landing)
    landing.land()
    with pytest.raises(LineageError, match="files of"):
        starts(landing)
    assert landing.ids() == list(range(100))
    starts(landing, pipeline="again")
    assert len(landing.ids()) == 300


def test_streams_of_different_sources_need_no_names(landing: Landing, tmp_path: Path):
    landing.land()
    landing.run(landing.sink())
    (tmp_path / "b").mkdir()
    second = Landing(landing.spark, tmp_path / "b")
    second.location = landing.location
    second.land()
    second.run(second.sink())
    rates = landing.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    for name in ("r1", "r2"):
        query = landing.sink().start(
            rates.selectExpr("value as id", "'x' as category", "timestamp as ts", "1.0D as amount"),
            checkpoint_location=str(tmp_path / name),
            trigger={"processingTime": "0 seconds"},
        )
        try:
            _wait_for_a_checkpoint(query)
        finally:
            query.stop()
    assert len(landing.ids()) >= 210


def test_a_query_without_a_checkpoint_directory_is_refused(landing: Landing):
    landing.land()
    sink = landing.sink()
    query = landing.frame().writeStream.foreachBatch(sink).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="temporary one of Spark's"):
        query.awaitTermination()
    assert isinstance(sink.error, InvalidOptionError)
    for location in (None, ""):
        with pytest.raises(StreamlakeError, match="checkpoint"):
            sink.start(landing.frame(), checkpoint_location=location)  # type: ignore[arg-type]


def _wait_for_a_checkpoint(query: Any) -> None:
    """The source has no end."""
    give_up_at = time.monotonic() + 60
    while query.lastProgress is None:
        assert time.monotonic() < give_up_at, "no checkpoint within a minute"
        assert query.isActive, query.exception()
        time.sleep(0.1)
