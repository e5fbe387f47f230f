"""Every row is where the placed writer says it is."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from streamlake.formats.data_files import DataWriters
from streamlake.formats.readers import read_data_file
from streamlake.write.files.data_content import DataContent
from streamlake.write.files.placed_writer import PlacedWriter
from streamlake.write.rows.partitioner import Partitioner
from streamlake.write.rows.sort import RowSorter
from streamlake.write.target.output_files import OutputFiles
from tests.unit.write.targets import make_target


@pytest.mark.parametrize("partition_by", [[], ["bucket(5, id)"]])
@pytest.mark.parametrize("sort_by", [[], ["payload desc"]])
@pytest.mark.parametrize("file_bytes", [20_000, 1 << 20])
def test_places(tmp_path: Path, partition_by: list[str], sort_by: list[str], file_bytes: int) -> None:
    target = make_target(tmp_path, "id long, payload string", partition_by=partition_by, sort_by=sort_by)
    output = OutputFiles(target, 0, 0, 0)
    sorter = RowSorter(target.schema, target.sort_order) if sort_by else None
    writers = DataWriters("parquet", target.io, target.schema, target.options.format)
    writer = PlacedWriter(
        Partitioner(target.schema, target.spec) if partition_by else None,
        lambda partition: DataContent(target, writers, output.new_path(partition), partition, sorter),
        unpartitioned=(),
        target_bytes=file_bytes,
        buffer_bytes=1 << 20,
        max_open_files=2,
        sorter=sorter,
    )
    random.seed(7)
    said = {}
    for start in range(0, 12_000, 3_000):
        rows = pa.table(
            {
                "id": pa.array(range(start, start + 3_000), pa.int64()),
                "payload": [f"{random.random()}" for _ in range(3_000)],
            },
            schema=pa.schema([pa.field("id", pa.int64()), pa.field("payload", pa.string())]),
        )
        places = writer.write(rows)
        paths = list(writer.paths)
        for id_, file, position in zip(
            rows["id"].to_pylist(), places.files.tolist(), places.positions.tolist(), strict=True
        ):
            said[id_] = (paths[file], position)
    files = writer.close()
    found = {}
    for file in files:
        position = 0
        for batch in read_data_file(target.io, "parquet", file.file_path, target.schema):
            for id_ in batch.column("id").to_pylist():
                found[id_] = (file.file_path, position)
                position += 1
        assert position == file.record_count
    assert said == found
    assert len(found) == 12_000
    assert (len(files) > 1) == (file_bytes == 20_000 or bool(partition_by))
