"""Reads values of rows that are already in files, for changes that leave those values out.

Rows are given by file and position. Only the wanted columns of the wanted rows are read; in Parquet files,
only the pages that hold them where the file has page indexes. Columns are found by field id, as in every
read. Invariant: values come in the order in which rows are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamlake.errors import IndexDamagedError
from streamlake.formats.arrow.arrow_schema import schema_to_arrow
from streamlake.formats.columns.lineage_columns import ROW_POSITION
from streamlake.formats.columns.name_mapping import NameMapping
from streamlake.formats.parquet.row_groups import RowGroups
from streamlake.formats.readers import read_data_file
from streamlake.index.runs.run_format import ADVICE
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.types.schema import Schema
from streamlake.write.target.target import WriteTarget

Array = np.ndarray[Any, Any]

_BATCH_ROWS = 65_536


class OldRows:
    """Reads old rows of one table."""

    def __init__(self, target: WriteTarget) -> None:
        self._target = target
        text = target.name_mapping
        self._mapping = None if text is None else NameMapping.from_json(text)

    def read(
        self,
        paths: Sequence[str],
        file: Array,
        positions: Array,
        columns: Sequence[str],
        files: Mapping[str, DataFile],
    ) -> pa.Table:
        """`columns` of n rows, in the table's types.

        Row i is at position `positions[i]` of file `paths[file[i]]`; `files` describes each of these files.

        Raises IndexDamagedError when a file has no row at such a position, StorageError, DataInvalidError.
        """
        schema = self._schema(columns)
        order = np.lexsort((positions, file))
        edges: Array = np.flatnonzero(np.diff(file[order])) + 1
        tables = [schema_to_arrow(schema, field_ids=False).empty_table()]
        for part in np.split(order, edges) if len(order) else ():
            data_file = files[paths[file[part[0]]]]
            wanted, inverse = np.unique(positions[part], return_inverse=True)
            found = self._found(data_file, schema, wanted, tables[0].schema)
            if found.num_rows != len(wanted):
                raise IndexDamagedError(
                    f"the key index has {len(wanted)} rows in {data_file.file_path}, of which the file has "
                    f"{found.num_rows}; {ADVICE}"
                )
            tables.append(found if len(wanted) == len(part) else found.take(pa.array(inverse)))
        back: Array = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_tables(tables).take(pa.array(back))

    def _schema(self, columns: Sequence[str]) -> Schema:
        schema = self._target.schema
        fields = tuple(replace(part, required=False) for part in schema.fields if part.name in columns)
        return replace(schema, fields=fields, identifier_field_ids=())

    def _found(self, file: DataFile, schema: Schema, wanted: Array, arrow_schema: pa.Schema) -> pa.Table:
        read = self._of_parquet if file.file_format.lower() == "parquet" else self._of_any
        batches = [batch.select(arrow_schema.names) for batch in read(file, schema, wanted)]
        if not batches:
            return arrow_schema.empty_table()
        return pa.Table.from_batches(batches).cast(arrow_schema)

    def _of_parquet(self, file: DataFile, schema: Schema, wanted: Array) -> Iterator[pa.RecordBatch]:
        with RowGroups(
            self._target.io,
            file.file_path,
            name_mapping=self._mapping,
            batch_size=_BATCH_ROWS,
            constants=self._constants(file),
        ) as groups:
            for group in groups.groups(schema):
                low = int(np.searchsorted(wanted, group.first))
                high = int(np.searchsorted(wanted, group.first + group.rows))
                if low < high:
                    live: Array = np.zeros(group.rows, dtype=bool)
                    live[wanted[low:high] - group.first] = True
                    yield from groups.batches(group, schema, live)

    def _of_any(self, file: DataFile, schema: Schema, wanted: Array) -> Iterator[pa.RecordBatch]:
        schema = replace(schema, fields=(*schema.fields, ROW_POSITION))
        for batch in read_data_file(
            self._target.io,
            file.file_format,
            file.file_path,
            schema,
            name_mapping=self._mapping,
            constants=self._constants(file),
        ):
            kept = np.isin(batch.column(ROW_POSITION.name).to_numpy(), wanted)
            if kept.any():
                yield batch.filter(pa.array(kept))

    def _constants(self, file: DataFile) -> Mapping[int, Any]:
        return self._target.spec_by_id(file.spec_id).identity_values(file.partition)
