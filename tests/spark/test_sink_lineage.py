"""Queries that are restarted, doubled or robbed of their table: every row once, or a refusal that says why."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamlake import IcebergSink, create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.cli.main import main
from streamlake.commit.receipt import CommitReceipt, Outcome
from streamlake.errors import (
    DataInvalidError,
    FencedError,
    InvalidOptionError,
    LineageError,
    SchemaMismatchError,
    TableNotFoundError,
)
from streamlake.spec.types.ddl import parse_ddl
from streamlake.spec.types.schema import Schema
from streamlake.table.producers.append_files import AppendFiles
from streamlake.table.updates.manage_refs import ManageRefs
from tests.helpers.invariants import check_table
from tests.helpers.landing import DDL, Landing


@pytest.fixture
def landing(spark: SparkSession, tmp_path: Path) -> Landing:
    return Landing(spark, tmp_path)


def run(landing: Landing, process: Callable[[DataFrame, int], None]) -> None:
    writer = landing.frame().writeStream.foreachBatch(process)
    query = writer.option("checkpointLocation", landing.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def ids(location: str, ref: str | None = None) -> list[int]:
    return sorted(load_table(location).scan(columns=["id"], ref=ref).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("name", [None, "second"])
def test_two_frames_of_a_micro_batch_into_one_table_are_refused(landing: Landing, name: str | None):
    landing.land()
    first, second = landing.sink(), landing.sink(pipeline=name)

    def process(frame: DataFrame, checkpoint_id: int) -> None:
        first(frame.where("id < 50"), checkpoint_id)
        second(frame.where("id >= 50"), checkpoint_id)

    with pytest.raises(StreamingQueryException, match="rows would be lost"):
        run(landing, process)
    assert isinstance(second.error, InvalidOptionError)


def test_one_sink_called_twice_for_a_micro_batch_is_refused(landing: Landing):
    landing.land()
    sink = landing.sink()

    def process(frame: DataFrame, checkpoint_id: int) -> None:
        sink(frame.where("id < 0"), checkpoint_id)
        sink(frame.where("id >= 0"), checkpoint_id)

    with pytest.raises(StreamingQueryException, match="rows would be lost"):
        run(landing, process)


def test_the_same_frame_may_be_tried_again(landing: Landing):
    landing.land()
    sink = landing.sink()

    def process(frame: DataFrame, checkpoint_id: int) -> None:
        sink(frame, checkpoint_id)
        sink(frame, checkpoint_id)

    run(landing, process)
    assert [receipt.outcome for receipt in sink.receipts] == [Outcome.COMMITTED, Outcome.SKIPPED]
    assert landing.ids() == list(range(100))


def test_one_query_feeds_many_tables_and_branches(landing: Landing, tmp_path: Path):
    for _ in range(2):
        landing.land()
    create_table(landing.location, DDL)
    other = str(tmp_path / "other")
    sinks = [
        (landing.sink(branch="audit"), "id % 2 = 0"),
        (landing.sink(), "id % 2 = 1"),
        (IcebergSink(other, create=True), "id >= 150"),
    ]

    def process(frame: DataFrame, checkpoint_id: int) -> None:
        for sink, condition in sinks:
            sink(frame.where(condition), checkpoint_id)

    for _ in range(2):
        run(landing, process)
        landing.land()
    run(landing, process)
    assert ids(landing.location, "audit") == list(range(0, 400, 2))
    assert landing.ids() == list(range(1, 400, 2))
    assert ids(other) == list(range(150, 400))
    for location in (landing.location, other):
        check_table(open_table(location), files_exist=True)


@pytest.mark.parametrize("branch", ["main", "audit"])
def test_a_query_that_is_restarted_with_the_same_sink_recovers_what_it_staged(
    landing: Landing, monkeypatch: pytest.MonkeyPatch, branch: str
):
    create_table(landing.location, DDL)
    landing.land()
    sink = landing.sink(branch=branch)
    landing.run(sink)
    landing.land()

    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("the network is down")

    with monkeypatch.context() as patch:
        patch.setattr("streamlake.commit.committer.Committer.commit", crash)
        with pytest.raises(StreamingQueryException, match="the network is down"):
            landing.run(sink)
    landing.run(sink)
    assert [receipt.outcome for receipt in sink.receipts] == [Outcome.COMMITTED, Outcome.RECOVERED]
    assert ids(landing.location, branch) == list(range(200))


def test_a_query_that_finds_its_successor_in_sparks_own_log_is_fenced(landing: Landing):
    """Spark looks at its log before the sink looks at the table."""

    def successor(receipt: CommitReceipt) -> None:
        log = Path(landing.checkpoint, "commits")
        log.mkdir(exist_ok=True)
        (log / str(receipt.checkpoint_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    landing.land()
    with pytest.raises(FencedError, match="another driver runs the same checkpoint directory"):
        landing.run(landing.sink(on_commit=successor))
    landing.land()
    landing.run(landing.sink())
    assert landing.ids() == list(range(200))


def test_a_table_that_was_created_anew_is_not_taken_for_the_old_one(landing: Landing):
    landing.land()
    landing.run(landing.sink())
    shutil.rmtree(landing.location)
    landing.land()
    for sink in (landing.sink(), IcebergSink(landing.location)):
        with pytest.raises(LineageError, match="was dropped"):
            landing.run(sink)
    with pytest.raises(TableNotFoundError):
        load_table(landing.location)
    create_table(landing.location, DDL)
    for sink in (landing.sink(), IcebergSink(landing.location)):
        with pytest.raises(LineageError, match="was dropped") as refusal:
            landing.run(sink)
    assert load_table(landing.location).snapshots == ()
    recover(str(refusal.value), "--adopt")
    landing.run(landing.sink())
    assert landing.ids() == list(range(100, 200))


def test_a_table_that_was_dropped_is_filled_from_the_beginning(landing: Landing):
    for _ in range(2):
        landing.land()
        landing.run(landing.sink())
    shutil.rmtree(landing.location)
    landing.land()
    with pytest.raises(LineageError, match="was dropped") as refusal:
        landing.run(landing.sink())
    recover(str(refusal.value), "--rewind-to=-1")
    landing.run(landing.sink())
    landing.land()
    landing.run(landing.sink())
    assert landing.ids() == list(range(400))


def recover(message: str, way: str) -> None:
    """Take a way out by the command that the message names."""
    [words] = [text for text in re.findall(r"`streamlake ([^`]*)`", message) if f" {way}" in text]
    with pytest.raises(SystemExit) as ended:
        main([*shlex.split(words), "--yes"])
    assert ended.value.code == 0


@pytest.mark.parametrize("upserts", [False, True])
def test_a_rolled_back_table_is_rewound_and_written_again(landing: Landing, upserts: bool):
    """Spark plans the checkpoints after the one that it was put back to anew, from the source's own log of files."""
    mode = {"mode": "upsert", "key": ["id"]} if upserts else {}
    first = None
    for _ in range(3):
        landing.land()
        landing.run(landing.sink(pipeline="p", **mode))
        first = first or load_table(landing.location).current_snapshot.snapshot_id
    ManageRefs(open_table(landing.location)).set_branch("main", first).commit()
    landing.land()
    with pytest.raises(LineageError, match="was rolled back") as refusal:
        landing.run(landing.sink(pipeline="p", **mode))
    recover(str(refusal.value), "--rewind-to=0")
    landing.run(landing.sink(pipeline="p", **mode))
    assert landing.ids() == list(range(400))
    check_table(open_table(landing.location), files_exist=True)


def test_an_older_directory_is_forked(landing: Landing, tmp_path: Path):
    """With a query id of its own; Spark goes on from there."""
    landing.land()
    landing.run(landing.sink(pipeline="p"))
    shutil.copytree(landing.checkpoint, tmp_path / "old")
    for _ in range(2):
        landing.land()
    landing.run(landing.sink(pipeline="p"))
    landing.land()
    landing.checkpoint = str(tmp_path / "old")
    with pytest.raises(LineageError, match="older than the table") as refusal:
        landing.run(landing.sink(pipeline="p"), landing.frame(files_at_once=3))
    recover(str(refusal.value), "--fork")
    landing.run(landing.sink(pipeline="p"))
    assert landing.ids() == sorted([*range(400), *range(100, 300)])
    check_table(open_table(landing.location), files_exist=True)


def test_a_table_that_lost_both_its_marks_is_not_written_on(landing: Landing):
    """The snapshots have expired, and somebody has removed the properties that nobody seemed to need."""
    landing.land()
    landing.run(landing.sink())
    table = open_table(landing.location)
    base = table.metadata
    own = {name: text for name, text in base.properties.items() if name.startswith("streamlake.")}
    others = {name: text for name, text in base.properties.items() if name not in own}
    plain = tuple(replace(snapshot, summary={"operation": "append"}) for snapshot in base.snapshots)
    bare = replace(base, properties=others, snapshots=plain, snapshot_log=())
    table.operations.commit(base, bare)
    landing.land()
    with pytest.raises(LineageError, match="no longer knows it"):
        landing.run(landing.sink())
    assert landing.ids() == list(range(100))
    AppendFiles(table).commit()
    base = table.refresh().metadata
    head = replace(base.snapshots[-1], parent_snapshot_id=1)
    table.operations.commit(base, replace(base, properties={**others, **own}, snapshots=(plain[0], head)))
    landing.run(landing.sink())
    assert landing.ids() == list(range(200))


def test_a_query_without_rows_leaves_no_marks_and_goes_on(landing: Landing):
    for _ in range(2):
        landing.land()
        landing.run(landing.sink(), landing.frame().where("id >= 200"))
    landing.land()
    landing.run(landing.sink(), landing.frame().where("id >= 200"))
    assert landing.ids() == list(range(200, 300))


def test_a_table_may_be_created_anew_before_anything_was_written(landing: Landing):
    landing.land()
    create_table(landing.location, "id string")
    with pytest.raises(Exception, match="does not fit"):
        landing.run(landing.sink())
    shutil.rmtree(landing.location)
    landing.run(landing.sink())
    assert landing.ids() == list(range(100))


def test_a_table_that_is_replaced_under_a_running_query_ends_it(landing: Landing):
    landing.land()
    query = landing.sink().start(landing.frame(), checkpoint_location=landing.checkpoint)
    query.processAllAvailable()
    shutil.rmtree(landing.location)
    create_table(landing.location, DDL)
    landing.land()
    with pytest.raises(DataInvalidError, match="another table"):
        query.awaitTermination(60)
    assert load_table(landing.location).snapshots == ()


def test_a_task_that_refuses_a_row_takes_the_files_of_its_neighbours_with_it(landing: Landing):
    landing.land(2_000)
    create_table(landing.location, DDL.replace("id bigint", "id bigint not null"))
    id_or_null = "if(id = 1234, null, id) as id"
    frame = landing.frame().selectExpr(id_or_null, "category", "ts", "amount").repartition(2)
    with pytest.raises(SchemaMismatchError):
        landing.run(IcebergSink(landing.location), frame)
    assert list(Path(landing.location, "data").rglob("*.parquet")) == []
    assert load_table(landing.location).snapshots == ()


def test_a_schema_and_spec_that_change_under_a_running_query(landing: Landing):
    landing.land()
    query = landing.sink(partition_by=["category"]).start(
        landing.frame(), checkpoint_location=landing.checkpoint
    )
    try:
        query.processAllAvailable()
        table = open_table(landing.location)
        base = table.metadata
        wider = parse_ddl(f"{DDL}, note string")
        added: Any = replace(wider.struct.fields[-1], field_id=base.last_column_id + 1)
        schema = Schema((*base.schema.struct.fields, added), schema_id=base.current_schema_id + 1)
        spec = replace(base.spec, spec_id=1, fields=())
        table.operations.commit(
            base,
            replace(
                base,
                schemas=(*base.schemas, schema),
                current_schema_id=schema.schema_id,
                last_column_id=added.field_id,
                specs=(*base.specs, spec),
                default_spec_id=1,
            ),
        )
        landing.land()
        query.processAllAvailable()
    finally:
        query.stop()
    rows = load_table(landing.location).scan().to_arrow()
    assert rows.num_rows == 200
    assert rows["note"].null_count == 200
    fresh = open_table(landing.location)
    assert sorted(part.partition_spec_id for part in fresh.manifests(fresh.current_snapshot)) == [0, 1]
    check_table(fresh, files_exist=True)
