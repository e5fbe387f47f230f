"""The writer task: files, names, results, and what is left behind when it fails."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.errors import FeatureUnsupportedError, SchemaMismatchError, StorageError, StreamlakeError
from streamlake.spec.metadata.data_file import FileContent
from streamlake.spec.metadata.table_metadata import new_table_metadata
from streamlake.spec.partitioning.partition_spec import PartitionField, PartitionSpec, parse_partition_by
from streamlake.spec.partitioning.transforms import UnknownTransform, Void
from streamlake.spec.types.ddl import parse_ddl
from streamlake.storage.local import LocalFileIO
from streamlake.write.files.outcomes import OUTCOMES
from streamlake.write.files.result import WriteResult
from streamlake.write.target.target import WriteTarget
from streamlake.write.task import write_rows, write_task
from tests.unit.write.targets import batches_of, make_target, paths_under, read, read_all, write

ROWS = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "category": [f"c{at % 3}" for at in range(10)],
        "amount": [at / 2 for at in range(10)],
        "ts": pa.array([at * 86_400_000_000 for at in range(10)], pa.int64()).cast(pa.timestamp("us")),
    }
)


def test_one_batch_with_one_result_comes_out(tmp_path: Path) -> None:
    target = pickle.loads(pickle.dumps(make_target(tmp_path)))
    answers = list(write_task(target, lambda: (3, 11, 2))(iter(ROWS.to_batches())))
    assert len(answers) == 1
    assert answers[0].schema.equals(OUTCOMES)
    result = WriteResult.from_bytes(answers[0]["result"][0].as_py())
    assert (result.job_id, result.checkpoint_id, result.task_id, result.attempt) == ("job", 7, 11, 2)
    assert result.rows == 10
    assert result.delete_files == ()
    (file,) = result.data_files
    assert file.content == FileContent.DATA
    assert file.file_format == "parquet"
    assert file.partition == ()
    assert file.spec_id == 0
    assert file.record_count == 10
    assert file.sort_order_id is None
    assert file.value_counts == {1: 10, 2: 10, 3: 10, 4: 10}
    assert file.file_size_in_bytes == Path(file.file_path).stat().st_size == result.bytes
    assert re.fullmatch(r"00003-11-[0-9a-f-]{36}-00001\.parquet", Path(file.file_path).name)
    assert Path(file.file_path).parent == tmp_path / "data"
    assert read(file).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("partition_by", [(), ("category",)])
def test_no_rows_make_no_file(tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    target = make_target(tmp_path, partition_by=partition_by)
    for batches in ([], ROWS.slice(0, 0).to_batches(), [pa.RecordBatch.from_pylist([], schema=ROWS.schema)]):
        result = write_rows(target, batches, 0, 0, 0)
        assert result.data_files == ()
        assert result.rows == 0
    assert paths_under(tmp_path) == []


def test_names_tell_partitions_tasks_attempts_and_checkpoints_apart(tmp_path: Path) -> None:
    names: set[str] = set()
    for checkpoint in (1, 2):
        for run in ("first", "replay"):
            target = make_target(tmp_path, checkpoint_id=checkpoint, operation_uuid=run)
            for ids in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)):
                result = write_rows(target, ROWS.to_batches(), *ids)
                names |= {Path(file.file_path).name.partition("-")[2] for file in result.data_files}
    assert len(names) == 16
    assert len(paths_under(tmp_path)) == 16


def test_the_same_attempt_has_the_same_names(tmp_path: Path) -> None:
    first, second = (write(make_target(tmp_path / where), ROWS).data_files[0].file_path for where in "ab")
    assert Path(first).name == Path(second).name


def test_partitioned_rows_go_into_hive_directories(tmp_path: Path) -> None:
    result = write(make_target(tmp_path, partition_by=["category", "bucket(2, id)"]), ROWS)
    assert result.counters == {"files": len(result.data_files), "partitions": len(result.data_files)}
    for file in result.data_files:
        rows = read(file)
        assert set(rows["category"].to_pylist()) == {file.partition[0]}
        assert (
            Path(file.file_path).parent
            == tmp_path / f"data/category={file.partition[0]}/id_bucket={file.partition[1]}"
        )
    assert len({file.file_path for file in result.data_files}) == len(result.data_files)
    assert sorted(read_all(result.data_files)["id"].to_pylist()) == list(range(10))


def test_a_spec_of_dropped_fields_writes_null_partition_values(tmp_path: Path) -> None:
    spec = PartitionSpec(4, (PartitionField(2, 1000, "category_null", Void()),))
    result = write(replace(make_target(tmp_path), spec=spec), ROWS)
    assert [(file.partition, file.spec_id) for file in result.data_files] == [((None,), 4)]


def test_the_target_of_a_table(tmp_path: Path) -> None:
    schema = parse_ddl("id long not null, category string")
    metadata = new_table_metadata(
        location=str(tmp_path),
        schema=schema,
        spec=parse_partition_by(["category"], schema),
        properties={"write.target-file-size-bytes": "1000000", "write.data.path": f"{tmp_path}/elsewhere"},
        format_version=2,
        now_ms=0,
        table_uuid="7bbf8f2c-0000-4000-8000-000000000000",
    )
    target = WriteTarget.for_table(
        metadata,
        io=LocalFileIO(),
        job_id="job",
        checkpoint_id=1,
        operation_uuid="op",
        properties={"streamlake.write.max-open-files": "2"},
    )
    assert target.options.target_file_size_bytes == 1_000_000
    assert target.options.max_open_files == 2
    assert target.location == str(tmp_path)
    result = write(target, [{"id": 1, "category": "a"}])
    assert result.data_files[0].file_path.startswith(f"{tmp_path}/elsewhere/category=a/")


def test_a_row_that_does_not_fit_removes_what_the_attempt_wrote(tmp_path: Path) -> None:
    target = make_target(
        tmp_path,
        "id long not null, category string",
        partition_by=["category"],
        properties={
            "streamlake.write.memory-budget-bytes": "1048576",
            "streamlake.write.max-open-files": "1",
        },
    )
    good = pa.record_batch({"id": range(60_000), "category": [f"{at % 5}" * 20 for at in range(60_000)]})
    bad = pa.record_batch({"id": pa.array([1, None], pa.int64()), "category": ["x", "y"]})
    seen: list[int] = []

    def batches():
        yield good
        yield good
        seen.append(len(paths_under(tmp_path)))
        yield bad

    with pytest.raises(SchemaMismatchError, match="column 'id', row 120001"):
        write_rows(target, batches(), 0, 0, 0)
    assert seen[0] > 0, "files were there before the failure"
    assert paths_under(tmp_path) == []


def test_an_error_of_the_input_passes_through_and_removes_the_files(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    broken = batches_of(*ROWS.to_batches(), then=ConnectionResetError("the JVM went away"))
    with pytest.raises(ConnectionResetError, match="the JVM went away"):
        write_rows(target, broken, 0, 0, 0)
    assert paths_under(tmp_path) == []


class FullDisk(LocalFileIO):
    """Opens files whose writes fail."""

    def open_output(self, path: str):
        stream = super().open_output(path)

        class Full:
            closed = False

            def write(self, data: bytes) -> int:
                raise OSError(28, "No space left on device")

            def __getattr__(self, name: str):
                return getattr(stream, name)

        return Full()


def test_a_full_disk_is_a_storage_error_and_leaves_nothing(tmp_path: Path) -> None:
    target = replace(make_target(tmp_path), io=FullDisk())
    with pytest.raises(StorageError, match="no space left"):
        write_rows(target, ROWS.to_batches(), 0, 5, 0)
    assert paths_under(tmp_path) == []


def test_a_directory_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the directory should be")
    with pytest.raises(StorageError, match="data"):
        write_rows(make_target(tmp_path), ROWS.to_batches(), 0, 0, 0)


def test_what_nobody_foresaw_is_still_our_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr("streamlake.write.rows.row_check.RowCheck.align", explode)
    with pytest.raises(
        StreamlakeError, match=r"checkpoint 7, task 5, attempt 1: .*ZeroDivisionError: surprise"
    ):
        write_rows(make_target(tmp_path), ROWS.to_batches(), 0, 5, 1)

    def exhaust(*_: object) -> None:
        raise MemoryError("malloc of size 1 failed")

    monkeypatch.setattr("streamlake.write.rows.row_check.RowCheck.align", exhaust)
    with pytest.raises(StreamlakeError, match=r"streamlake\.write\.memory-budget-bytes"):
        write_rows(make_target(tmp_path), ROWS.to_batches(), 0, 5, 1)


def test_a_stop_of_the_task_removes_the_files(tmp_path: Path) -> None:
    def stopped():
        yield from ROWS.to_batches()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rows(make_target(tmp_path), stopped(), 0, 0, 0)
    assert paths_under(tmp_path) == []


def test_an_unknown_transform_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    spec = PartitionSpec(1, (PartitionField(1, 1000, "id_z", UnknownTransform("zorder[3]")),))
    with pytest.raises(FeatureUnsupportedError, match=r"'id_z' has the unknown transform 'zorder\[3\]'"):
        write_rows(replace(target, spec=spec), batches_of(then=AssertionError("read")), 0, 0, 0)


def test_a_spec_over_a_dropped_column_is_refused(tmp_path: Path) -> None:
    target = make_target(tmp_path, partition_by=["category"])
    schema = parse_ddl("id long")
    with pytest.raises(FeatureUnsupportedError, match="field id 2"):
        write_rows(replace(target, schema=schema), ROWS.to_batches(), 0, 0, 0)


@pytest.mark.parametrize("file_format", ["avro", "orc"])
def test_other_file_formats(tmp_path: Path, file_format: str) -> None:
    target = make_target(
        tmp_path, partition_by=["category"], properties={"write.format.default": file_format}
    )
    result = write(target, ROWS)
    assert {file.file_format for file in result.data_files} == {file_format}
    assert all(file.file_path.endswith(f".{file_format}") for file in result.data_files)
    assert result.rows == 10
