"""Position delete files: sorted, of the data file's spec and partition, exactly bounded, in bounded memory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlake.errors import DataInvalidError, FeatureUnsupportedError, InvalidOptionError, StorageError
from streamlake.formats.deletes.position_deletes import (
    FILE_PATH_ID,
    POSITION_DELETES,
    POSITION_ID,
    read_position_deletes,
)
from streamlake.formats.readers import read_data_file
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.partitioning.partition_spec import PartitionField, PartitionSpec
from streamlake.spec.partitioning.transforms import Bucket
from streamlake.storage.local import LocalFileIO
from streamlake.write.deletes import position_deletes
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.deletes.position_deletes import write_position_deletes
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from tests.unit.write.targets import make_target, paths_under

IO = LocalFileIO()
FORMATS = ("parquet", "avro", "orc")
DATA = "hdfs://warehouse/db/t/data/"


def deleted(name: str, spec_id: int = 0, partition: tuple = ()) -> DeletedFile:
    return DeletedFile(DATA + name, spec_id, partition)


def positions(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def output_of(target: WriteTarget) -> OutputFiles:
    return OutputFiles(target, 3, 11, 0)


def rows_of(file: DataFile) -> list[tuple[str, int]]:
    batches = read_data_file(IO, file.file_format, file.file_path, POSITION_DELETES)
    return [
        row
        for batch in batches
        for row in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("file_format", FORMATS)
def test_one_file_per_data_file(tmp_path: Path, file_format: str) -> None:
    target = make_target(tmp_path, properties={"write.delete.format.default": file_format})
    long = "b" * 300 + ".parquet"
    given_positions = {deleted(long): positions(9, 4, 2**40, 4), deleted("a.parquet"): positions(0)}
    first, second = write_position_deletes(target, output_of(target), given_positions)
    assert rows_of(first) == [(DATA + "a.parquet", 0)]
    assert rows_of(second) == [(DATA + long, 4), (DATA + long, 9), (DATA + long, 2**40)]
    assert second.content == FileContent.POSITION_DELETES
    assert (second.file_format, second.spec_id, second.partition) == (file_format, 0, ())
    assert second.referenced_data_file == DATA + long
    path = (DATA + long).encode()
    assert second.lower_bounds == {FILE_PATH_ID: path, POSITION_ID: (4).to_bytes(8, "little")}
    assert second.upper_bounds == {FILE_PATH_ID: path, POSITION_ID: (2**40).to_bytes(8, "little")}
    assert (second.record_count, second.file_size_in_bytes) == (3, os.path.getsize(second.file_path))
    assert second.value_counts is second.null_value_counts is second.nan_value_counts is None
    assert second.sort_order_id is second.equality_ids is second.content_offset is None
    name = Path(second.file_path).name
    assert name.startswith("00003-11-")
    assert name.endswith(f"-00002-deletes.{file_format}")
    assert Path(second.file_path).parent == tmp_path / "data"
    assert read_position_deletes(IO, second)[DATA + long].tolist() == [4, 9, 2**40]


def test_one_file_per_partition(tmp_path: Path) -> None:
    target = make_target(
        tmp_path, partition_by=["category"], properties={"write.delete.granularity": "partition"}
    )
    found = write_position_deletes(
        target,
        output_of(target),
        {
            deleted("z", partition=("x",)): positions(3, 1),
            deleted("y", partition=(None,)): positions(7),
            deleted("a", partition=("x",)): positions(5),
        },
    )
    by_partition = {file.partition: file for file in found}
    assert rows_of(by_partition[("x",)]) == [(DATA + "a", 5), (DATA + "z", 1), (DATA + "z", 3)]
    assert by_partition[("x",)].referenced_data_file is None
    assert by_partition[("x",)].lower_bounds is by_partition[("x",)].upper_bounds is None
    assert by_partition[(None,)].referenced_data_file == DATA + "y"
    assert by_partition[(None,)].lower_bounds is not None
    assert Path(by_partition[("x",)].file_path).parent == tmp_path / "data" / "category=x"
    assert Path(by_partition[(None,)].file_path).parent == tmp_path / "data" / "category=null"


def test_deletes_are_of_their_data_files_spec(tmp_path: Path) -> None:
    """The table was partitioned by bucket, and before that not at all."""
    target = make_target(tmp_path, partition_by=["category"])
    bucketed = PartitionSpec(4, (PartitionField(1, 1001, "id_bucket", Bucket(8)),))
    target = replace(target, spec=replace(target.spec, spec_id=5), specs=(PartitionSpec(0), bucketed))
    found = write_position_deletes(
        target,
        output_of(target),
        {
            deleted("a", 4, (3,)): positions(1),
            deleted("b"): positions(1),
            deleted("c", 5, ("x",)): positions(1),
        },
        "partition",
    )
    assert [(file.spec_id, file.partition) for file in found] == [(4, (3,)), (0, ()), (5, ("x",))]
    places = [Path(file.file_path).parent.relative_to(tmp_path).as_posix() for file in found]
    assert places == ["data/id_bucket=3", "data", "data/category=x"]
    with pytest.raises(DataInvalidError, match="partition spec 7"):
        write_position_deletes(target, output_of(target), {deleted("d", 7): positions(1)})


def test_partition_files_roll(tmp_path: Path) -> None:
    properties = {
        "write.delete.granularity": "partition",
        "write.delete.target-file-size-bytes": "20000",
        "write.delete.parquet.compression-codec": "uncompressed",
        "streamlake.parquet.encodings": "plain",
    }
    target = make_target(tmp_path, properties=properties)
    generator = np.random.default_rng(1)
    given_positions = {deleted(f"{at:02d}"): generator.integers(0, 1 << 50, 2000) for at in range(10)}
    found = write_position_deletes(target, output_of(target), given_positions)
    assert 4 < len(found) < 20
    assert all(10_000 < file.file_size_in_bytes < 40_000 for file in found[:-1])
    rows = [row for file in found for row in rows_of(file)]
    assert rows == sorted(rows)
    assert len(rows) == 20_000
    assert any(file.referenced_data_file is None for file in found)


def test_options_of_delete_files_are_used(tmp_path: Path) -> None:
    properties = {
        "write.parquet.compression-codec": "zstd",
        "write.delete.parquet.compression-codec": "gzip",
        "write.metadata.metrics.default": "none",
    }
    target = make_target(tmp_path, properties=properties)
    (file,) = write_position_deletes(target, output_of(target), {deleted("a"): np.arange(1000)})
    assert pq.read_metadata(file.file_path).row_group(0).column(0).compression == "GZIP"
    assert set(file.lower_bounds or ()) == {FILE_PATH_ID, POSITION_ID}
    assert file.split_offsets == (4,)
    fields = {part.name: part.metadata for part in pq.read_schema(file.file_path)}
    assert fields["file_path"][b"PARQUET:field_id"] == b"2147483546"
    assert fields["pos"][b"PARQUET:field_id"] == b"2147483545"


def test_what_is_refused(tmp_path: Path) -> None:
    target = make_target(tmp_path)
    assert write_position_deletes(target, output_of(target), {}) == ()
    for version in (1, 3):
        other = replace(target, format_version=version)
        with pytest.raises(FeatureUnsupportedError, match=f"format version {version}"):
            write_position_deletes(other, output_of(other), {deleted("a"): positions(1)})
    with pytest.raises(DataInvalidError, match="data/a: position deletes without a position"):
        write_position_deletes(target, output_of(target), {deleted("a"): positions()})
    with pytest.raises(DataInvalidError, match="position -2 is negative"):
        write_position_deletes(target, output_of(target), {deleted("a"): positions(-2, 5)}, "partition")
    with pytest.raises(InvalidOptionError, match="granularity"):
        write_position_deletes(target, output_of(target), {deleted("a"): positions(1)}, "table")
    assert paths_under(tmp_path) == []


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = make_target(tmp_path)
    output = output_of(target)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    for granularity in ("file", "partition"):
        with pytest.raises(StorageError, match="no space left"):
            write_position_deletes(target, output, {deleted("a"): positions(1)}, granularity)
    assert paths_under(tmp_path) == []


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.lists(
            st.one_of(
                st.integers(0, 2**62).map(lambda at: [at]),
                st.tuples(st.integers(0, 2**40), st.integers(1, 300)).map(
                    lambda run: list(range(run[0], run[0] + run[1]))
                ),
            ),
            min_size=1,
            max_size=5,
        ),
        max_size=6,
    ),
    st.sampled_from(["file", "partition"]),
    st.sampled_from(FORMATS),
)
def test_any_positions_survive(
    tmp_path: Path, parts: dict[str, list[list[int]]], granularity: str, file_format: str
) -> None:
    target = make_target(tmp_path, properties={"write.delete.format.default": file_format})
    expected = {name: sorted({at for part in lists for at in part}) for name, lists in parts.items()}
    given_positions = {
        deleted(name): positions(*(at for part in reversed(lists) for at in part))
        for name, lists in parts.items()
    }
    found = write_position_deletes(target, output_of(target), given_positions, granularity)
    read = {path: part for file in found for path, part in read_position_deletes(IO, file).items()}
    assert {path.removeprefix(DATA): part.tolist() for path, part in read.items()} == expected
    assert len(found) == (len(parts) if granularity == "file" else min(1, len(parts)))


def test_many_positions_go_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    write = position_deletes.PositionDeleteContent.write

    def watched(self: position_deletes.PositionDeleteContent, rows: pa.Table) -> None:
        sizes.append(rows.num_rows)
        write(self, rows)

    monkeypatch.setattr(position_deletes.PositionDeleteContent, "write", watched)
    target = make_target(tmp_path)
    (file,) = write_position_deletes(target, output_of(target), {deleted("a"): np.arange(200_000)})
    assert sizes == [65_536, 65_536, 65_536, 3_392]
    assert read_position_deletes(IO, file)[DATA + "a"].tolist() == list(range(200_000))
