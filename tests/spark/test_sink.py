"""The sink under a real Structured Streaming query: every row once, whatever is replayed, restarted or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streamlake import IcebergSink, create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.commit.receipt import Outcome
from streamlake.errors import (
    InvalidOptionError,
    LineageError,
    SchemaMismatchError,
    StreamlakeError,
    TableNotFoundError,
)
from tests.helpers.invariants import check_table
from tests.helpers.landing import Landing


@pytest.fixture
def landing(spark: SparkSession, tmp_path: Path) -> Landing:
    return Landing(spark, tmp_path)


def test_one_snapshot_per_checkpoint(landing: Landing):
    for _ in range(3):
        landing.land()
    sink = landing.sink(partition_by=["day(ts)", "bucket(4, id)"])
    landing.run(sink)
    assert landing.ids() == list(range(300))
    assert [receipt.checkpoint_id for receipt in sink.receipts] == [0, 1, 2]
    assert all(receipt.outcome == Outcome.COMMITTED and receipt.rows == 100 for receipt in sink.receipts)
    table = load_table(landing.location)
    assert [snapshot.snapshot_id for snapshot in table.snapshots] == [r.snapshot_id for r in sink.receipts]
    summary = table.current_snapshot.summary
    assert summary["streamlake.max-committed-checkpoint-id"] == "2"
    metadata = json.loads(Path(landing.checkpoint, "metadata").read_text())
    assert summary["streamlake.job-id"] == metadata["id"]
    [end] = json.loads(summary["streamlake.end-offsets"])
    assert json.loads(end)["logOffset"] == 2
    assert json.loads(end)["files"], "a number alone does not tell which files a checkpoint has"
    check_table(open_table(landing.location), files_exist=True)


def test_plain_foreach_batch(landing: Landing):
    landing.land()
    writer = landing.frame().writeStream.foreachBatch(landing.sink())
    query = writer.option("checkpointLocation", landing.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    assert landing.ids() == list(range(100))


def test_restart_goes_on_where_it_stopped(landing: Landing):
    landing.land()
    landing.run(landing.sink())
    landing.land()
    landing.run(landing.sink())
    landing.run(landing.sink())
    assert landing.ids() == list(range(200))
    assert len(load_table(landing.location).snapshots) == 2


def test_replay_of_a_committed_checkpoint_is_skipped(landing: Landing):
    landing.land()
    landing.land()
    landing.run(landing.sink())
    for name in ("1", ".1.crc"):
        Path(landing.checkpoint, "commits", name).unlink()
    sink = landing.sink()
    landing.run(sink)
    assert [(receipt.checkpoint_id, receipt.outcome) for receipt in sink.receipts] == [(1, Outcome.SKIPPED)]
    assert landing.ids() == list(range(200))
    assert len(load_table(landing.location).snapshots) == 2


def test_a_staged_checkpoint_is_committed_and_not_written_again(landing: Landing, monkeypatch):
    landing.land()
    landing.run(landing.sink())
    landing.land()
    sink = landing.sink()

    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("the driver ends between staging and commit")

    with monkeypatch.context() as patch:
        patch.setattr("streamlake.commit.committer.Committer.commit", crash)
        with pytest.raises(StreamingQueryException, match="between staging and commit"):
            landing.run(sink)
    assert landing.ids() == list(range(100))
    staged = set(Path(landing.location, "data").rglob("*.parquet"))
    sink = landing.sink()
    landing.run(sink)
    assert [(receipt.checkpoint_id, receipt.outcome) for receipt in sink.receipts] == [(1, Outcome.RECOVERED)]
    assert set(Path(landing.location, "data").rglob("*.parquet")) == staged
    assert landing.ids() == list(range(200))


def test_staged_state_is_kept_until_the_next_checkpoint_commits(landing: Landing):
    landing.land()
    landing.land()
    landing.run(landing.sink())
    staged = list(Path(landing.location, "metadata", "streamlake").rglob("*.json"))
    assert len(staged) == 1
    assert json.loads(staged[0].read_text())["identity"]["checkpoint_id"] == 1


def test_a_lost_checkpoint_directory_is_refused_under_a_pipeline_name(landing: Landing):
    landing.land()
    landing.run(landing.sink(pipeline="orders"))
    landing.checkpoint += "-new"
    with pytest.raises(LineageError, match="restore the old checkpoint directory"):
        landing.run(landing.sink(pipeline="orders"))
    assert landing.ids() == list(range(100))


def test_empty_batches_commit_nothing_but_every_nth(landing: Landing):
    landing.land()
    landing.run(landing.sink())
    sink = landing.sink(max_continuous_empty_commits=3)
    for _ in range(4):
        landing.land(10)
    landing.run(sink, landing.frame().where("id < 0"))
    assert [receipt.outcome for receipt in sink.receipts] == [
        Outcome.EMPTY,
        Outcome.EMPTY,
        Outcome.COMMITTED,
        Outcome.EMPTY,
    ]
    table = load_table(landing.location)
    assert len(table.snapshots) == 2
    assert table.current_snapshot.summary["streamlake.max-committed-checkpoint-id"] == "3"
    assert landing.ids() == list(range(100))


@pytest.mark.parametrize("distribution", ["none", "hash", "range"])
def test_distribution_modes(landing: Landing, distribution: str):
    for _ in range(2):
        landing.land(1_000)
    sink = landing.sink(
        partition_by=["category", "bucket(4, id)", "month(ts)", "truncate(10, id)"]
        if distribution == "none"
        else ["bucket(4, id)", "day(ts)"],
        sort_by=["ts desc", "id"] if distribution == "range" else (),
        properties={"write.distribution-mode": distribution},
    )
    landing.run(sink)
    assert landing.ids() == list(range(2_000))
    check_table(open_table(landing.location), files_exist=True)


@pytest.mark.parametrize(
    ("distribution", "partition_by"),
    [("none", ()), ("hash", ()), ("hash", ("bucket(64, id)",)), ("range", ())],
)
def test_so_many_tasks_write(landing: Landing, distribution: str, partition_by: tuple[str, ...]):
    """And by the job's own options, whatever the table's properties are."""
    landing.land(3_000)
    sink = landing.sink(
        partition_by=partition_by,
        sort_by=["id"] if distribution == "range" else (),
        properties={"write.distribution-mode": "none", "write.parquet.compression-codec": "zstd"},
        write_options={"distribution-mode": distribution, "compression-codec": "gzip"},
        write_parallelism=5,
    )
    landing.run(sink)
    assert landing.ids() == list(range(3_000))
    files = list(Path(landing.location, "data").rglob("*.parquet"))
    assert len({path.name.split("-")[0] for path in files}) == 5
    codecs = {pq.ParquetFile(path).metadata.row_group(0).column(0).compression for path in files}
    assert codecs == {"GZIP"}
    properties = open_table(landing.location).properties
    assert properties["write.parquet.compression-codec"] == "zstd"
    assert properties["write.distribution-mode"] == "none"


def test_upserts_in_so_many_tasks(landing: Landing):
    """An index that is built gets so many buckets, and keeps them under a sink that asks for others."""
    known: set[Path] = set()
    for wanted in (5, 2):
        landing.land(300)
        landing.run(landing.sink(mode="upsert", key=["id"], pipeline="p", write_parallelism=wanted))
        files = set(Path(landing.location, "data").rglob("*.parquet"))
        assert len({path.name.split("-")[0] for path in files - known}) == 5
        known = files
    assert landing.ids() == list(range(600))


def test_hash_distribution_writes_one_file_per_partition(landing: Landing):
    landing.land(900)
    landing.run(landing.sink(partition_by=["category"], properties={"write.distribution-mode": "hash"}))
    assert len(list(Path(landing.location, "data").rglob("*.parquet"))) == 3


def test_overwrite_leaves_the_last_checkpoint_only(landing: Landing):
    for _ in range(3):
        landing.land()
    landing.run(landing.sink(mode="overwrite"))
    assert landing.ids() == list(range(200, 300))


def test_dynamic_overwrite_replaces_the_partitions_it_writes(landing: Landing):
    landing.land()
    landing.run(landing.sink(partition_by=["category"]))
    landing.land()
    landing.run(landing.sink(mode="dynamic-overwrite"), landing.frame().where("category = 'c1'"))
    expected = [n for n in range(100) if n % 3 != 1] + [n for n in range(100, 200) if n % 3 == 1]
    assert landing.ids() == sorted(expected)


def test_branch_writes(landing: Landing):
    landing.land()
    landing.run(landing.sink())
    landing.land()
    landing.checkpoint += "-audit"
    landing.run(landing.sink(branch="audit"), landing.frame().where("id >= 100"))
    assert landing.ids() == list(range(100))
    audit = load_table(landing.location).scan(ref="audit").to_arrow()
    assert sorted(audit["id"].to_pylist()) == list(range(200))


def test_columns_are_matched_by_name(landing: Landing):
    landing.land()
    landing.run(landing.sink(), landing.frame().select("amount", "ts", "category", "id"))
    landing.land()
    landing.run(landing.sink(), landing.frame().select("category", "id"))
    table = load_table(landing.location).scan().to_arrow()
    assert table.num_rows == 200
    assert table.filter(pa.compute.field("id") >= 100)["amount"].null_count == 100


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda frame: frame.withColumn("extra", frame["id"]), "'extra' is not in the table"),
        (lambda frame: frame.drop("id"), "required column 'id'"),
        (lambda frame: frame.selectExpr("category AS id", "category"), "id"),
        (lambda frame: frame.selectExpr("CASE WHEN id <> 150 THEN id END AS id", "category"), "id"),
    ],
    ids=["extra-column", "missing-column", "wrong-type", "null-in-required"],
)
def test_rows_that_do_not_fit_lose_nothing(landing: Landing, change, match: str):
    create_table(landing.location, "id bigint not null, category string, ts timestamp, amount double")
    landing.land()
    landing.run(landing.sink())
    landing.land()
    sink = landing.sink()
    with pytest.raises(SchemaMismatchError, match=match):
        landing.run(sink, change(landing.frame()))
    assert landing.ids() == list(range(100))
    landing.run(landing.sink())
    assert landing.ids() == list(range(200))
    check_table(open_table(landing.location), files_exist=True)


def test_a_missing_table_is_not_created_unasked(landing: Landing):
    landing.land()
    with pytest.raises(TableNotFoundError, match="create"):
        landing.run(IcebergSink(landing.location))


def test_arguments_that_make_no_sense(spark: SparkSession, tmp_path: Path):
    with pytest.raises(InvalidOptionError, match="mode 'apend'"):
        IcebergSink(str(tmp_path), mode="apend")
    rate = spark.readStream.format("rate").load()
    with pytest.raises(InvalidOptionError, match="row_kind"):
        IcebergSink(str(tmp_path), mode="changelog").start(rate, checkpoint_location=str(tmp_path / "c"))
    with pytest.raises(InvalidOptionError, match="create=True"):
        IcebergSink(str(tmp_path), partition_by=["a"])
    with pytest.raises(InvalidOptionError, match="key"):
        IcebergSink(str(tmp_path), key=["a"])


def test_a_batch_frame_is_refused(landing: Landing):
    with pytest.raises(InvalidOptionError, match="not a stream"):
        landing.sink().start(landing.spark.range(3), checkpoint_location=landing.checkpoint)
    with pytest.raises(StreamlakeError, match="outside of a streaming query"):
        landing.sink()(landing.spark.range(3), 0)
