"""Deletion vectors of many data files in one Puffin file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamlake.errors import DataInvalidError, FeatureUnsupportedError
from streamlake.formats.deletes.deletion_vectors import MAX_POSITION, read_deletion_vector
from streamlake.formats.deletes.puffin import Blob, read_footer
from streamlake.spec.metadata.data_file import FileContent
from streamlake.spec.partitioning.partition_spec import PartitionField, PartitionSpec
from streamlake.spec.partitioning.transforms import Bucket
from streamlake.storage.local import LocalFileIO
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.deletes.deletion_vectors import write_deletion_vectors
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget
from tests.unit.write.targets import make_target, paths_under

IO = LocalFileIO()


def output_of(target: WriteTarget) -> OutputFiles:
    return OutputFiles(target, 3, 11, 0)


def test_many_vectors_in_one_file(tmp_path: Path) -> None:
    target = make_target(tmp_path, format_version=3)
    given = {
        DeletedFile("z.parquet", 0, ()): np.array([2**33, 5, 5, 1]),
        DeletedFile("a.parquet", 0, ()): np.arange(100_000),
        DeletedFile("m.parquet", 0, ()): np.array([MAX_POSITION]),
    }
    found = write_deletion_vectors(target, output_of(target), given)
    assert [file.referenced_data_file for file in found] == ["a.parquet", "m.parquet", "z.parquet"]
    assert [file.record_count for file in found] == [100_000, 1, 3]
    assert len({file.file_path for file in found}) == 1
    path = found[0].file_path
    assert Path(path).parent == tmp_path / "data"
    assert Path(path).name.startswith("00003-11-")
    assert path.endswith("-00001-deletes.puffin")
    for file in found:
        assert file.content == FileContent.POSITION_DELETES
        assert file.is_deletion_vector
        assert file.file_size_in_bytes == os.path.getsize(path)
        assert file.lower_bounds is file.value_counts is file.sort_order_id is file.split_offsets is None
        positions = next(part for key, part in given.items() if key.file_path == file.referenced_data_file)
        assert read_deletion_vector(IO, file).tolist() == sorted(set(positions.tolist()))
    footer = read_footer(IO, path)
    assert footer.blobs == tuple(
        Blob(
            "deletion-vector-v1",
            (2147483645,),
            -1,
            -1,
            file.content_offset,
            file.content_size_in_bytes,
            None,
            {"referenced-data-file": file.referenced_data_file, "cardinality": str(file.record_count)},
        )
        for file in found
    )


def test_vectors_are_of_their_data_files_spec(tmp_path: Path) -> None:
    target = make_target(tmp_path, partition_by=["category"], format_version=3)
    bucketed = PartitionSpec(4, (PartitionField(1, 1001, "id_bucket", Bucket(8)),))
    target = replace(target, spec=replace(target.spec, spec_id=5), specs=(bucketed,))
    output = output_of(target)
    old, new = DeletedFile("a", 4, (3,)), DeletedFile("b", 5, ("x",))
    found = write_deletion_vectors(target, output, {old: np.array([1]), new: np.array([2])})
    assert [(file.spec_id, file.partition) for file in found] == [(4, (3,)), (5, ("x",))]
    assert Path(found[0].file_path).parent == tmp_path / "data"
    (alone,) = write_deletion_vectors(target, output, {old: np.array([1])})
    assert Path(alone.file_path).parent == tmp_path / "data" / "id_bucket=3"


def test_what_is_refused(tmp_path: Path) -> None:
    target = make_target(tmp_path, format_version=3)
    output = output_of(target)
    file = DeletedFile("a", 0, ())
    assert write_deletion_vectors(target, output, {}) == ()
    with pytest.raises(FeatureUnsupportedError, match="format version 2 has no deletion vectors"):
        write_deletion_vectors(replace(target, format_version=2), output, {file: np.array([1])})
    for positions in ([], [-1], [MAX_POSITION + 1]):
        with pytest.raises(DataInvalidError):
            write_deletion_vectors(
                target, output, {DeletedFile("0", 0, ()): np.array([3]), file: np.array(positions, np.int64)}
            )
    assert paths_under(tmp_path) == []
