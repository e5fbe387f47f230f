"""`write_options` and `write_parallelism` of a sink: what its files are like then, and what stays as it is."""

from __future__ import annotations

import logging
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from streamlake import IcebergSink, IcebergTables, load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.checkpoint.table_note import Calls
from streamlake.errors import InvalidOptionError
from streamlake.index.bucketing import Bucketing
from streamlake.index.runs.run import RunRef
from streamlake.index.state import IndexState
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.pipeline.kafka.bucket_owner import BucketOwner
from streamlake.pipeline.kafka.range_frame import limited
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.source.offsets import OffsetRange, at_most
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.types.data_types import LongType, NestedField
from streamlake.table.table import Table
from streamlake.write.target.job_options import JobOptions
from streamlake.write.target.options import WriteOptions
from streamlake.write.task import write_rows
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table
from tests.unit.pipeline.kafka.test_bucket_owner import TEXT, intended

DDL = "id long, v string"
ROWS = pa.table(
    {
        "id": pa.array(range(20_000), pa.int64()),
        "v": [sha256(str(at).encode()).hexdigest() for at in range(20_000)],
    }
)
SESSION: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=3))
IDENTITY = CheckpointIdentity("p", "job", 0, end_offsets=("1",))


def opened(table: Table, **arguments: Any) -> SinkRun:
    """The run that the sink makes for a query."""
    stream = IcebergSink(table.location, pipeline="p", **arguments).stream(Calls.EVERY)
    note: Any = SimpleNamespace(command=None)
    return stream.new_run(table, note, "run", IDENTITY, SESSION)


def written(table: Table, **arguments: Any) -> tuple[DataFile, ...]:
    """The data files of a checkpoint that a sink with these arguments appends."""
    run = opened(table, **arguments)
    target: Any = run.target(IDENTITY)
    results = [write_rows(target, ROWS.to_batches(max_chunksize=1_000), 0, 0, 0)]
    committable = run.stage(IDENTITY, results)
    assert committable is not None
    run.commit(committable, results)
    return results[0].data_files


def codec_of(path: str, file_format: str) -> str:
    if file_format == "parquet":
        return str(pq.ParquetFile(path).metadata.row_group(0).column(0).compression)
    if file_format == "orc":
        return str(pyarrow.orc.ORCFile(path).compression)
    head = Path(path).read_bytes()[:4_000]
    return next(name for name in ("zstandard", "snappy", "deflate") if name.encode() in head)


@pytest.mark.parametrize(
    ("properties", "options", "file_format", "codec"),
    [
        ({}, {"compression-codec": "gzip"}, "parquet", "GZIP"),
        ({}, {"compression-codec": "gzip", "compression-level": 9}, "parquet", "GZIP"),
        ({}, {"compression-codec": "NONE"}, "parquet", "UNCOMPRESSED"),
        (
            {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "19"},
            {"compression-codec": "gzip"},
            "parquet",
            "GZIP",
        ),
        ({}, {"write-format": "avro"}, "avro", "deflate"),
        ({}, {"write-format": "AVRO", "compression-codec": "zstd"}, "avro", "zstandard"),
        ({"write.format.default": "avro"}, {"compression-codec": "snappy"}, "avro", "snappy"),
        ({}, {"write-format": "orc", "compression-codec": "zstd"}, "orc", "ZSTD"),
        ({"write.format.default": "orc"}, {"write-format": "parquet"}, "parquet", "ZSTD"),
    ],
)
def test_format_and_codec(
    tmp_path: Path, properties: dict[str, str], options: dict[str, Any], file_format: str, codec: str
) -> None:
    table = make_table(tmp_path / "t", DDL, properties=properties)
    before = dict(table.properties)
    files = written(table, write_options=options)
    assert {file.file_format for file in files} == {file_format}
    assert {codec_of(file.file_path, file_format) for file in files} == {codec}
    assert all(Path(file.file_path).suffix == f".{file_format}" for file in files)
    assert load_table(str(tmp_path / "t")).scan().to_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()
    after = open_table(str(tmp_path / "t")).properties
    assert {name: after.get(name) for name in before} == before
    assert not {name for name in after if name.startswith("write.")} - before.keys()


def test_the_size_of_files(tmp_path: Path) -> None:
    large = {"write.parquet.row-group-size-bytes": "10000", "streamlake.write.memory-budget-bytes": "1048576"}
    small = {**large, "write.target-file-size-bytes": "200000"}
    assert len(written(make_table(tmp_path / "t", DDL, properties=large))) == 1
    assert len(written(make_table(tmp_path / "u", DDL, properties=small))) > 3
    table = make_table(tmp_path / "v", DDL, properties=small)
    assert len(written(table, write_options={"target-file-size-bytes": 10_000_000})) == 1
    table = make_table(tmp_path / "w", DDL, properties=large)
    files = written(table, write_options={"target-file-size-bytes": "200000"})
    assert len(files) > 3
    assert sum(file.record_count for file in files) == len(ROWS)
    assert max(file.file_size_in_bytes for file in files) < 400_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"write-fromat": "avro"}, "unknown option 'write-fromat'; did you mean 'write-format'"),
        ({"compression_codec": "gzip"}, "did you mean 'compression-codec'"),
        ({"write.format.default": "avro"}, "it is 'write-format' here"),
        ({"write.parquet.compression-level": "3"}, "it is 'compression-level' here"),
        ({"branch": "b"}, "the sink's argument branch"),
        ({"write-parallelism": "2"}, "the sink's argument write_parallelism"),
        ({"write-format": "parqet"}, "'parqet' is not known; .*Did you mean 'parquet'"),
        ({"compression-codec": "zst"}, "Did you mean 'zstd'"),
        ({"compression-level": "high"}, "'high' is not a whole number"),
        ({"target-file-size-bytes": 0}, "it must be at least 1"),
        ({"target-file-size-bytes": "512 MB"}, "not a whole number"),
        ({"distribution-mode": "hsh"}, "Did you mean 'hash'"),
    ],
)
def test_what_is_no_option(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        IcebergSink("t", write_options=given)
    with pytest.raises(InvalidOptionError, match=message):
        IcebergTables("{topic}", write_options=given)
    with pytest.raises(InvalidOptionError, match=message):
        IcebergTables("{topic}", tables={"t": {"write_options": given}})


@pytest.mark.parametrize("parallelism", [0, -1, True])
def test_no_parallelism(parallelism: int) -> None:
    with pytest.raises(InvalidOptionError, match="write_parallelism"):
        IcebergSink("t", write_parallelism=parallelism)


@pytest.mark.parametrize(
    ("properties", "given", "message"),
    [
        ({"write.format.default": "orc"}, {"compression-level": 3}, "means nothing to orc files"),
        ({}, {"compression-strategy": "speed"}, "means nothing to parquet files"),
        ({}, {"compression-codec": "zlib"}, "write_options compression-codec: .*zlib.* is not supported"),
        ({}, {"compression-codec": "gzip", "compression-level": 12}, "those of gzip are 1 to 9"),
        ({}, {"compression-codec": "snappy", "compression-level": 2}, "means nothing to the codec snappy"),
        (
            {},
            {"write-format": "avro", "compression-codec": "gzip", "compression-level": 12},
            "the highest level of gzip",
        ),
    ],
)
def test_what_does_not_go_with_the_table(
    tmp_path: Path, properties: dict[str, str], given: dict[str, Any], message: str
) -> None:
    table = make_table(tmp_path / "t", DDL, properties=properties)
    with pytest.raises(InvalidOptionError, match=message):
        opened(table, write_options=given)
    # Nor is a table made for it.
    sink = IcebergSink(str(tmp_path / "u"), create=True, properties=properties, write_options=given)
    with pytest.raises(InvalidOptionError, match=message):
        sink.stream(Calls.EVERY).table("id long", sink.settings.new_table)
    assert not (tmp_path / "u").exists()


def test_delete_files_of_the_same_format_are_compressed_alike() -> None:
    properties = {
        "write.delete.parquet.compression-codec": "zstd",
        "write.delete.parquet.compression-level": "19",
    }

    def options(given: dict[str, str], **more: str) -> WriteOptions:
        table = {**properties, **more}
        return WriteOptions.from_properties({**table, **JobOptions.of(given, None).overrides(table)})

    found = options({"compression-codec": "gzip"}).delete
    assert (found.format.parquet_codec, found.format.parquet_compression_level) == ("gzip", None)
    found = options({"compression-codec": "zstd"}).delete
    assert (found.format.parquet_codec, found.format.parquet_compression_level) == ("zstd", 19)
    found = options({"write-format": "orc", "compression-codec": "none", "delete-format": "parquet"}).delete
    assert (found.file_format, found.format.parquet_codec) == ("parquet", "zstd")
    found = options({"write-format": "avro"}, **{"write.delete.format.default": "parquet"}).delete
    assert found.file_format == "parquet"
    found = options({"write-format": "avro", "target-delete-file-size-bytes": "77"}).delete
    assert (found.file_format, found.target_file_size_bytes) == ("avro", 77)


@pytest.mark.parametrize("delete_mode", ["position", "copy-on-write", "equality"])
def test_upserts(tmp_path: Path, delete_mode: str) -> None:
    """Of all files that a checkpoint leaves: rows, deletes, and rows of files that are written again."""
    table = make_table(tmp_path / "t", DDL)
    stream = LocalUpserts(table.location, key=["id"], delete_mode=delete_mode)
    stream.run.job = JobOptions.of({"write-format": "avro", "compression-codec": "zstd"}, None)
    stream.checkpoint(ROWS.slice(0, 10))
    stream.checkpoint(ROWS.slice(5, 10))
    written = [path for path in (tmp_path / "t" / "data").rglob("*") if path.is_file()]
    written = [path for path in written if path.suffix in (".avro", ".parquet", ".orc")]
    assert {path.suffix for path in written} == {".avro"}
    assert {codec_of(str(path), "avro") for path in written} == {"zstandard"}
    found = load_table(table.location).scan().to_arrow().sort_by("id").to_pylist()
    assert found == ROWS.slice(0, 15).to_pylist()


def buckets_of(run: SinkRun) -> int:
    assert isinstance(run, UpsertRun)
    target: Any = run.target(IDENTITY)
    return int(target.buckets)


def test_an_index_that_is_there_keeps_its_buckets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = make_table(tmp_path / "t", DDL, properties={"streamlake.upsert.buckets": "7"})
    upsert = {"mode": "upsert", "key": ["id"]}
    assert buckets_of(opened(table, **upsert)) == 7
    assert buckets_of(opened(table, **upsert, write_parallelism=5)) == 5
    stream = LocalUpserts(table.location, key=["id"])
    stream.checkpoint(ROWS.slice(0, 10))
    table = open_table(table.location)
    run = opened(table, **upsert, write_parallelism=5)
    with caplog.at_level(logging.WARNING, logger="streamlake"):
        assert buckets_of(run) == 7
        assert buckets_of(run) == 7
    assert isinstance(run, UpsertRun)
    assert run._index.rows_indexed() == 0
    [message] = [record.getMessage() for record in caplog.records]
    assert "write_parallelism=5 is for an index that is rebuilt; the key index has 7 buckets" in message
    equality = opened(table, **upsert, delete_mode="equality", write_parallelism=5)
    assert buckets_of(equality) == 5


def test_an_index_keeps_its_buckets_where_changes_are_not_shuffled() -> None:
    """With entries; an empty one gets as many as are asked for and divide the topic's partitions."""
    fields = (NestedField(1, "id", LongType()),)
    empty = IndexState("uuid", (1,), (), 2, (), 0, None)
    empty = replace(empty, message_key=Bucketing(2, TEXT).name)
    state = replace(empty, runs=(RunRef("r", 0, 2, 10, 1, 1),))
    owner = BucketOwner("auto", 4, "lake/t", keeps=True)
    owner.intended = intended(8)
    assert owner.bucketing(state, fields) == Bucketing(2, TEXT)
    assert owner.bucketing(empty, fields) == Bucketing(4, TEXT)
    # Without write_parallelism the index follows, as ever.
    owner = BucketOwner("auto", 4, "lake/t")
    owner.intended = intended(8)
    assert owner.bucketing(state, fields) == Bucketing(4, TEXT)


def piece(topic: str, partition: int, records: int = 100) -> OffsetRange:
    return OffsetRange(topic, partition, 0, records)


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 8, 20])
def test_ranges_for_so_many_tasks(tasks: int) -> None:
    ranges = [piece("t", at, 10 ** (at % 4) - 1) for at in range(8)]
    groups = at_most(ranges, tasks)
    assert [each for group in groups for each in group] == ranges
    assert len(groups) <= tasks
    assert all(groups)
    even = at_most([piece("t", at) for at in range(8)], tasks)
    assert len(even) == min(tasks, 8)
    assert at_most([], tasks) == []


def test_appends_of_a_table_in_so_many_tasks() -> None:
    ranges = [piece(topic, at) for at in range(6) for topic in ("a", "b", "c")]
    of = {"a": 0, "b": 0, "c": 1}.get
    groups = limited(ranges, 100, of, {0: 2})
    few = [group for group in groups if group[0].topic != "c"]
    assert len(few) == 2
    assert sorted(len(group) for group in few) == [6, 6]
    assert [group for group in groups if group not in few] == [[piece("c", at)] for at in range(6)]
    assert sorted((each for group in groups for each in group), key=str) == sorted(ranges, key=str)


PIPELINE = """
source: {rate: {}}
sink:
  table: t
  write-options: {write-format: avro, target-file-size-bytes: 1000000}
  write-parallelism: 3
checkpoint: c
"""


def test_in_a_pipeline_file() -> None:
    arguments = parse_pipeline(PIPELINE, "p.yaml", {}).sink.arguments
    sink = IcebergSink("t", **arguments)
    assert sink.job.parallelism == 3
    assert sink.job.options == {"write-format": "avro", "target-file-size-bytes": "1000000"}
    with pytest.raises(
        InvalidOptionError, match=r"p.yaml: sink.write-options: unknown option 'write-fromat'; did you mean"
    ):
        parse_pipeline(PIPELINE.replace("write-format", "write-fromat"), "p.yaml", {})
    with pytest.raises(InvalidOptionError, match=r"sink.write-parallelism is 0"):
        parse_pipeline(PIPELINE.replace("m: 3", "m: 0"), "p.yaml", {})
