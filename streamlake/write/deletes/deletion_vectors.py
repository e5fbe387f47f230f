"""Writes the deletion vectors of many data files to one Puffin file (spec: Deletion Vectors).

Each deletion vector has a manifest entry of its own. For tables of format version 3 and up. The positions
must include those deleted before, because a new deletion vector replaces everything before it. Invariant: an
attempt that fails leaves no file.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamlake.errors import FeatureUnsupportedError
from streamlake.failpoints import failpoint
from streamlake.formats.columns.lineage_columns import ROW_POSITION
from streamlake.formats.deletes.deletion_vectors import BLOB_TYPE, Positions, encode_deletion_vector
from streamlake.formats.deletes.position_deletes import merged_positions
from streamlake.formats.deletes.puffin import PuffinWriter
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED
from streamlake.write.deletes.deleted_file import DeletedFile
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget


def write_deletion_vectors(
    target: WriteTarget, output: OutputFiles, positions: Mapping[DeletedFile, Positions]
) -> tuple[DataFile, ...]:
    """Write one Puffin file with a deletion vector per data file. No data files make no file.

    Raises FeatureUnsupportedError below format version 3, DataInvalidError for a data file without positions
    or with one that does not fit, StorageError.
    """
    if target.format_version < 3:
        raise FeatureUnsupportedError(
            f"{target.location}: format version {target.format_version} has no deletion vectors; write "
            "position deletes, or upgrade the table to format version 3"
        )
    if not positions:
        return ()
    path = _path(target, output, positions)
    writer = PuffinWriter(target.io, path)
    entries = []
    try:
        for file in sorted(positions, key=lambda each: each.file_path):
            deleted = merged_positions([positions[file]])
            properties = {"referenced-data-file": file.file_path, "cardinality": str(len(deleted))}
            blob = encode_deletion_vector(deleted)
            entries.append(
                (
                    file,
                    len(deleted),
                    *writer.add(BLOB_TYPE, blob, (ROW_POSITION.field_id,), properties=properties),
                )
            )
        size = writer.close()
    except BaseException:
        writer.abort()
        raise
    failpoint("delete-file-closed")
    return tuple(
        DataFile(
            content=FileContent.POSITION_DELETES,
            file_path=path,
            file_format="puffin",
            spec_id=file.spec_id,
            partition=file.partition,
            record_count=count,
            file_size_in_bytes=size,
            referenced_data_file=file.file_path,
            content_offset=offset,
            content_size_in_bytes=length,
        )
        for file, count, offset, length in entries
    )


def _path(target: WriteTarget, output: OutputFiles, files: Mapping[DeletedFile, Positions]) -> str:
    """A path in the directory of the only partition, or in the data directory when there are several."""
    first = next(iter(files))
    if all((file.spec_id, file.partition) == (first.spec_id, first.partition) for file in files):
        return output.new_delete_path(target.spec_by_id(first.spec_id), first.partition, "puffin")
    return output.new_delete_path(UNPARTITIONED, (), "puffin")
