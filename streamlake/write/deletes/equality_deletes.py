"""Writes rows to delete by key into equality delete files (spec: Equality Delete Files).

The content combines with rolling and fanout as data does. By default a file holds the key columns alone, on
request the whole rows. Rows are given with the key columns and with the source columns of the partition spec:
a delete applies to the rows of its own partition only, unless its spec is unpartitioned. Invariants: a null
deletes null, NaN deletes NaN, and a zero deletes zeros of both signs, whatever reader applies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamlake.errors import FeatureUnsupportedError, InvalidOptionError
from streamlake.failpoints import failpoint
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.columns.column_projection import Projection
from streamlake.formats.data_files import DataWriters
from streamlake.spec.metadata.data_file import DataFile, FileContent
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.spec.partitioning.transforms import Void
from streamlake.spec.types.data_types import (
    DoubleType,
    FloatType,
    GeographyType,
    GeometryType,
    PrimitiveType,
    StructType,
    UnknownType,
    VariantType,
)
from streamlake.spec.types.schema import Schema
from streamlake.write.files.fanout import FanoutWriter
from streamlake.write.files.open_content import OpenContent
from streamlake.write.files.partition_writer import PartitionWriter
from streamlake.write.files.writers import RowsWriter
from streamlake.write.rows.partitioner import Partitioner
from streamlake.write.target.output_files import OutputFiles
from streamlake.write.target.target import WriteTarget

_NO_KEYS = (GeographyType, GeometryType, UnknownType, VariantType)
_FLOATS = (FloatType, DoubleType)


class EqualityDeleteContent(OpenContent):
    """One open equality delete file of one partition of `spec_id`; `shape` has the compared columns."""

    def __init__(
        self,
        writers: DataWriters,
        path: str,
        file_format: str,
        spec_id: int,
        partition: tuple[Any, ...],
        shape: DeleteShape,
    ) -> None:
        super().__init__(writers, path, file_format, spec_id, partition)
        self._shape = shape

    def write(self, rows: pa.Table) -> None:
        """Take rows with the columns `DeleteShape.columns`."""
        self._writer.write(self._shape.deletes(rows, self._path))

    def close(self) -> DataFile:
        """Finish the file and describe it, with its equality ids."""
        file = self._described(FileContent.EQUALITY_DELETES, self._writer.close())
        failpoint("delete-file-closed")
        return replace(file, equality_ids=self._shape.equality_ids)


class DeleteShape:
    """Turns rows of the table into rows of its equality delete files.

    `schema` is that of the delete files. `columns` are the names of the table's columns that rows are given
    with. Raises InvalidOptionError for ids that cannot be a key.
    """

    def __init__(
        self, schema: Schema, equality_ids: Sequence[int], spec: PartitionSpec, *, whole_row: bool = False
    ) -> None:
        self.equality_ids = tuple(equality_ids)
        names = [_key_name(schema, field_id) for field_id in self.equality_ids]
        if not names:
            raise InvalidOptionError("equality deletes need at least one key column")
        self.schema = _whole_rows(schema, names) if whole_row else schema.select(names)
        sources = [part.source_id for part in spec.fields if not isinstance(part.transform, Void)]
        partition_sources = {(schema.name_of(source) or "").partition(".")[0] for source in sources}
        given = {part.name for part in self.schema.fields} | partition_sources
        self.columns = tuple(part.name for part in schema.fields if part.name in given)
        self._given_schema = schema_to_arrow(schema.select(self.columns))
        self._signed = [
            part.name
            for part in self.schema.fields
            if part.field_id in self.equality_ids and isinstance(part.type, _FLOATS)
        ]

    def deletes(self, rows: pa.Table, path: str) -> pa.Table:
        """The rows as the delete file at `path` holds them."""
        projection = Projection(self._given_schema, self.schema, path)
        batches = [projection.apply(batch) for batch in rows.select(self.columns).to_batches()]
        return pa.Table.from_batches(batches, schema=projection.arrow_schema)

    def signed(self, rows: pa.Table) -> pa.Table:
        """The rows to delete, with zeros of floating point keys in both signs.

        Each sign may be a partition of its own, so this comes before rows are partitioned.
        """
        rows = rows.select(self.columns)
        for name in self._signed:
            zeros = rows.filter(pc.equal(rows.column(name), 0.0))
            if zeros.num_rows:
                at = rows.column_names.index(name)
                other = zeros.set_column(at, rows.schema.field(at), pc.negate(zeros.column(at)))
                rows = pa.concat_tables([rows, other])
        return rows


class EqualityDeleteWriter:
    """Writes rows to delete, given with at least the columns `columns`, to equality delete files."""

    def __init__(self, shape: DeleteShape, writer: RowsWriter) -> None:
        self._writer = writer
        self._shape = shape
        self.columns = shape.columns

    def write(self, rows: pa.Table) -> None:
        """Take rows to delete, as a RowsWriter does."""
        self._writer.write(self._shape.signed(rows))

    def close(self) -> tuple[DataFile, ...]:
        """Write what is left and describe all delete files."""
        return self._writer.close()

    def abort(self) -> None:
        """Close what is open without finishing it; never raises."""
        self._writer.abort()


def equality_delete_writer(
    target: WriteTarget,
    output: OutputFiles,
    equality_ids: Sequence[int],
    *,
    spec: PartitionSpec | None = None,
    whole_row: bool = False,
    buffer_bytes: int | None = None,
) -> EqualityDeleteWriter:
    """The writer of a task's equality deletes: rolled, with fanout over the partitions of `spec`.

    `spec` None is the table's current one. `buffer_bytes` bounds the rows that wait (None: as for data).
    Raises FeatureUnsupportedError below format version 2 and for a spec that rows cannot be partitioned by,
    InvalidOptionError for ids that cannot be a key.
    """
    if target.format_version < 2:
        raise FeatureUnsupportedError(
            f"{target.location}: format version 1 has no deletes; upgrade the table to format version 2 or 3"
        )
    spec = target.spec if spec is None else spec
    options, delete = target.options, target.options.delete
    shape = DeleteShape(target.schema, equality_ids, spec, whole_row=whole_row)
    writers = DataWriters(delete.file_format, target.io, shape.schema, delete.format)

    def open_file(partition: tuple[Any, ...]) -> EqualityDeleteContent:
        path = output.new_delete_path(spec, partition, delete.file_format)
        return EqualityDeleteContent(writers, path, delete.file_format, spec.spec_id, partition, shape)

    def partition_writer(partition: tuple[Any, ...]) -> PartitionWriter:
        return PartitionWriter(partial(open_file, partition), delete.target_file_size_bytes)

    if spec.is_unpartitioned:
        return EqualityDeleteWriter(shape, partition_writer((None,) * len(spec.fields)))
    partitioner = Partitioner(target.schema, spec)
    fanout = FanoutWriter(
        partitioner,
        lambda number: partition_writer(partitioner.partition(number)),
        options.buffer_bytes if buffer_bytes is None else buffer_bytes,
        options.max_open_files,
    )
    return EqualityDeleteWriter(shape, fanout)


def _whole_rows(schema: Schema, keys: Sequence[str]) -> Schema:
    """The schema of deleted rows. All columns but the key are optional: often only the key is known."""
    known = {name.partition(".")[0] for name in keys}
    fields = tuple(part if part.name in known else replace(part, required=False) for part in schema.fields)
    return replace(schema, fields=fields, identifier_field_ids=())


def _key_name(schema: Schema, field_id: int) -> str:
    """The dotted name of a key column.

    Raises InvalidOptionError when it cannot be one (spec: Identifier Field IDs).
    """
    part, name = schema.field(field_id), schema.name_of(field_id)
    if part is None or name is None:
        raise InvalidOptionError(f"the key column with field id {field_id} is not in the table's schema")
    if not isinstance(part.type, PrimitiveType) or isinstance(part.type, _NO_KEYS):
        raise InvalidOptionError(f"column '{name}' of type {part.type} cannot be a key of equality deletes")
    parent = schema.parents.get(field_id)
    if parent is not None and isinstance(part.type, _FLOATS):
        raise InvalidOptionError(
            f"column '{name}', a {part.type} inside a struct, cannot be a key of deletes"
        )
    while parent is not None:
        if not isinstance(schema.fields_by_id[parent].type, StructType):
            raise InvalidOptionError(
                f"column '{name}' lies in a list or a map; it cannot be a key of deletes"
            )
        parent = schema.parents.get(parent)
    return name
