"""Bad input: the error says what is wrong and what to do, the table is unharmed, and the next run goes on.

Rows that do not fit the table are in test_sink.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamlake import IcebergSink, create_table, load_table
from streamlake.catalog.open import open_table
from streamlake.commit.receipt import Outcome
from streamlake.errors import (
    DataInvalidError,
    DecodeError,
    InvalidOptionError,
    SchemaMismatchError,
    StorageError,
    StreamlakeError,
)
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.pipeline.definition.running import run_pipeline
from streamlake.pipeline.runs import sink_run
from streamlake.storage import local
from streamlake.table.updates.update_properties import UpdateProperties
from tests.helpers import faults
from tests.helpers.invariants import check_table
from tests.helpers.landing import Landing

Fault = Callable[[Landing, pytest.MonkeyPatch], AbstractContextManager[None]]


@pytest.fixture
def landing(spark: SparkSession, tmp_path: Path) -> Landing:
    return Landing(spark, tmp_path)


def refused(
    landing: Landing,
    fault: AbstractContextManager[None],
    kind: type[StreamlakeError],
    *,
    at_start: bool = False,
) -> str:
    """The message with which a checkpoint of 100 rows is refused while `fault` lasts, `at_start` before there is a query; the
    table stays what it was, and the next run with the same checkpoint directory brings every row once."""
    before, rows = _snapshot(landing), landing.rows
    landing.land()
    with fault, pytest.raises(kind) as raised:
        landing.run(landing.sink())
    assert type(raised.value) is kind
    from_query = isinstance(raised.value.__context__, StreamingQueryException)
    assert from_query is not at_start, "what the query itself reports"
    assert _snapshot(landing) == before
    assert landing.ids() == list(range(rows))
    landing.run(landing.sink())
    assert landing.ids() == list(range(rows + 100))
    check_table(open_table(landing.location), files_exist=True)
    return str(raised.value)


def _snapshot(landing: Landing) -> int:
    return load_table(landing.location).current_snapshot.snapshot_id


def _data_files(landing: Landing) -> set[Path]:
    return set(Path(landing.location, "data").rglob("*.parquet"))


@pytest.fixture
def filled(landing: Landing) -> Landing:
    """Two checkpoints are in the table."""
    landing.land()
    landing.land()
    landing.run(landing.sink(properties={"write.parquet.compression-codec": "uncompressed"}))
    return landing


@contextmanager
def _full_disk(landing: Landing, patch: pytest.MonkeyPatch) -> Iterator[None]:
    with patch.context() as context:
        context.setattr(
            sink_run.WriteTarget,
            "for_table",
            partial(_on_full_disk, sink_run.WriteTarget.for_table),
        )
        yield


def _on_full_disk(for_table: Callable[..., object], *arguments: object, **named: object) -> object:
    return for_table(*arguments, **{**named, "io": faults.FullDisk()})


@contextmanager
def _file_size_limit(landing: Landing, patch: pytest.MonkeyPatch) -> Iterator[None]:
    with patch.context() as context:
        limited = partial(faults.with_file_size_limit, sink_run.write_task, 500)
        context.setattr(sink_run, "write_task", limited)
        yield


@contextmanager
def _read_only_data(landing: Landing, patch: pytest.MonkeyPatch) -> Iterator[None]:
    with faults.read_only(Path(landing.location, "data")):
        yield


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (_full_disk, ("No space left on device", "free")),
        (_file_size_limit, ("File too large",)),
        (_read_only_data, ("ermission",)),
    ],
    ids=["full-disk", "file-size-limit", "read-only"],
)
def test_a_writer_task_cannot_write(
    fault: Fault, told: tuple[str, ...], filled: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _data_files(filled)
    message = refused(filled, fault(filled, monkeypatch), StorageError)
    assert filled.location in message
    if fault is not _read_only_data:
        assert any(text in message for text in told), message
    else:
        assert re.search("ermi|[Rr]ead-only", message), message
    assert len(_data_files(filled) - before) <= 2, "what the refused attempt wrote is gone"


@pytest.mark.parametrize("name", ["-m0.avro", "snap-", ".metadata.json", "committable"])
def test_the_driver_meets_a_full_disk(name: str, filled: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    write = local._write_temporary
    met = []

    def full(target: str, data: bytes, **how: bool) -> str:
        if name in target or (name == "committable" and "/streamlake/" in target):
            met.append(target)
            raise faults.device_is_full(target)
        return write(target, data, **how)

    @contextmanager
    def fault() -> Iterator[None]:
        with monkeypatch.context() as context:
            context.setattr(local, "_write_temporary", full)
            yield

    message = refused(filled, fault(), StorageError)
    assert met
    assert met[-1].rpartition("/")[2] in message
    assert "No space left on device" in message or "full" in message


def test_a_warehouse_where_nothing_can_be_created(landing: Landing) -> None:
    landing.land()
    good, landing.location = landing.location, "/sys/kernel/streamlake/events"
    with pytest.raises(StorageError, match="/sys/kernel/streamlake/events"):
        landing.run(landing.sink())
    landing.location = good
    landing.run(landing.sink())
    assert landing.ids() == list(range(100))


def _newest(landing: Landing, pattern: str) -> Path:
    found = Path(landing.location, "metadata").glob(pattern)
    return max(found, key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize(
    ("pattern", "damage", "properties"),
    [
        ("*-m*.avro", lambda data: data[: len(data) // 2], {"commit.manifest.min-count-to-merge": "2"}),
        ("snap-*.avro", lambda data: data[: len(data) - 30], {}),
        ("snap-*.avro", lambda data: b"", {}),
        ("v*.metadata.json", lambda data: b"<html>it is not here</html>", {}),
        ("v*.metadata.json", lambda data: data[: len(data) // 2], {}),
        (
            "v*.gz.metadata.json",
            lambda data: data[: len(data) // 2],
            {"write.metadata.compression-codec": "gzip"},
        ),
    ],
    ids=[
        "truncated-manifest",
        "truncated-manifest-list",
        "empty-manifest-list",
        "no-json",
        "truncated-json",
        "truncated-gzip",
    ],
)
def test_a_damaged_file_of_the_table(
    pattern: str, damage: Callable[[bytes], bytes], properties: dict[str, str], landing: Landing
) -> None:
    landing.land()
    landing.land()
    landing.run(landing.sink(properties=properties))
    path = _newest(landing, pattern)
    with faults.damaged(path, damage), pytest.raises(DataInvalidError, match=re.escape(path.name)):
        load_table(landing.location).scan().to_arrow()
    at_start = pattern.endswith(".metadata.json")
    message = refused(landing, faults.damaged(path, damage), DataInvalidError, at_start=at_start)
    assert path.name in message
    assert "restore" in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.target-file-size-bytes", "big"),
        ("write.format.default", "parkay"),
        ("write.distribution-mode", "everywhere"),
        ("commit.manifest.min-count-to-merge", "few"),
        ("write.parquet.compression-codec", "zip"),
        ("write.metadata.metrics.default", "some"),
    ],
)
def test_a_table_property_that_makes_no_sense(name: str, value: str, filled: Landing) -> None:
    @contextmanager
    def fault() -> Iterator[None]:
        before = load_table(filled.location).properties
        UpdateProperties(open_table(filled.location)).set(name, value).commit()
        yield
        update = UpdateProperties(open_table(filled.location))
        (update.set(name, before[name]) if name in before else update.remove(name)).commit()

    message = refused(filled, fault(), InvalidOptionError)
    assert name in message
    assert value in message


def test_a_new_table_with_a_property_that_makes_no_sense(landing: Landing) -> None:
    landing.land()
    with pytest.raises(InvalidOptionError, match="'parkay'"):
        landing.run(landing.sink(properties={"write.format.default": "parkay"}))
    assert not Path(landing.location).exists(), "no table that nobody could write to"
    landing.run(landing.sink())
    assert landing.ids() == list(range(100))


PIPELINE = """
source:
  files: {{path: {home}/in, format: json, schema: "id long, name string", options: {{{options}}}}}
sink: {{table: {home}/table, create: true}}
checkpoint: {home}/checkpoint
trigger: available-now
"""
GOOD = ['{"id": 1, "name": "a"}', '{"id": 2, "name": "b"}']
BAD = ['{"id": 3, "name": "c"}', '{"id": 4, "name', '{"id": 5, "name": "e"}']


def _json(home: Path, name: str, lines: list[str]) -> Path:
    (home / "in").mkdir(exist_ok=True)
    path = home / "in" / name
    path.with_name(f".{name}").write_text("\n".join(lines) + "\n")
    path.with_name(f".{name}").rename(path)
    return path


def test_malformed_json_in_a_pipelines_files(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = parse_pipeline(PIPELINE.format(home=tmp_path, options=""), "p.yaml")
    _json(tmp_path, "a.json", GOOD)
    run_pipeline(pipeline, spark)
    bad = _json(tmp_path, "b.json", BAD)
    with pytest.raises(
        DecodeError, match=r"/in/b\.json holds a record that cannot be read: .*mode: PERMISSIVE"
    ):
        run_pipeline(pipeline, spark)
    assert load_table(tmp_path / "table").scan().count() == 2
    bad.unlink()
    _json(tmp_path, "b.json", [BAD[0], '{"id": 4, "name": "d"}', BAD[2]])
    run_pipeline(pipeline, spark)
    assert sorted(load_table(tmp_path / "table").scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5]


def test_malformed_json_is_nulls_or_dropped_where_that_was_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    for mode, expected in (("PERMISSIVE", 3), ("dropMalformed", 2)):
        home = tmp_path / mode
        home.mkdir()
        _json(home, "a.json", BAD)
        run_pipeline(parse_pipeline(PIPELINE.format(home=home, options=f"Mode: {mode}"), "p.yaml"), spark)
        assert load_table(home / "table").scan().count() == expected


def test_malformed_json_of_a_stream(landing: Landing, tmp_path: Path) -> None:
    """Spark's default makes nulls of it, which a required column refuses."""
    _json(tmp_path, "a.json", BAD)
    frame = landing.spark.readStream.schema("id bigint, category string").json(str(tmp_path / "in"))
    landing.run(IcebergSink(landing.location, create=True), frame.where("id < 0"))
    from streamlake import create_table

    home = tmp_path / "required"
    create_table(home, "id bigint not null, category string")
    landing.location, landing.checkpoint = str(home), str(tmp_path / "checkpoint-2")
    with pytest.raises(SchemaMismatchError, match="'id'"):
        landing.run(IcebergSink(str(home)), frame)
    assert landing.ids() == []


def test_the_query_itself_tells_the_error(filled: Landing) -> None:
    """Users of a plain foreachBatch see Spark's exception: it holds class and message."""
    UpdateProperties(open_table(filled.location)).set("write.format.default", "parkay").commit()
    filled.land()
    writer = filled.frame().writeStream.foreachBatch(filled.sink())
    query = writer.option("checkpointLocation", filled.checkpoint).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match=r"InvalidOptionError.*write\.format\.default"):
        query.awaitTermination()
    assert "InvalidOptionError" in str(query.exception())
    UpdateProperties(open_table(filled.location)).remove("write.format.default").commit()
    sink = filled.sink()
    filled.run(sink)
    assert [receipt.outcome for receipt in sink.receipts] == [Outcome.COMMITTED]
    assert filled.ids() == list(range(300))
    assert json.loads(Path(filled.checkpoint, "metadata").read_text())["id"] == sink.receipts[0].job_id


def test_a_number_that_the_tables_decimals_have_no_room_for_is_refused(landing: Landing):
    """Whole numbers and decimals of a DataFrame in columns of a larger scale."""
    create_table(landing.location, "id long, a decimal(38,30), b decimal(38,20)", properties={})
    landing.land()
    frame = landing.frame()
    a = F.when(F.col("id") == 150, F.lit(10**18)).otherwise(F.col("id") * 1_000_000)
    numbers = frame.select("id", a.alias("a"), F.col("id").cast("decimal(38,0)").alias("b"))
    landing.run(landing.sink(), numbers)
    landing.land()
    no_room = F.lit(3402823669209384635).cast("decimal(38,0)")
    for refused_frame in (numbers, numbers.withColumn("a", F.lit(1)).withColumn("b", no_room)):
        with pytest.raises(SchemaMismatchError, match="does not fit the table's type decimal"):
            landing.run(landing.sink(), refused_frame)
    found = load_table(landing.location).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": id, "a": id * 1_000_000, "b": id} for id in range(100)]
