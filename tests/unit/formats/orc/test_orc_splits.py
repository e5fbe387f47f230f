"""Parts of ORC files: every stripe is read by exactly one of them, with the positions of its rows."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from pyarrow import orc

from streamlake.formats.columns.lineage_columns import ROW_POSITION
from streamlake.formats.columns.name_mapping import NameMapping
from streamlake.formats.orc import orc_reader
from streamlake.formats.readers import read_data_file
from streamlake.spec.types.data_types import LongType, NestedField
from streamlake.spec.types.schema import Schema
from streamlake.storage.local import LocalFileIO

ROWS = 120_000
SCHEMA = Schema((NestedField(1, "id", LongType()), ROW_POSITION))
MAPPING = NameMapping.from_json('[{"field-id": 1, "names": ["id"]}]')


def written(path, compression):
    table = pa.table({"id": pa.array([number * 7919 % 1_000_003 for number in range(ROWS)])})
    with orc.ORCWriter(str(path), compression=compression, stripe_size=16 * 1024, batch_size=1024) as writer:
        for batch in table.to_batches(max_chunksize=2000):
            writer.write(pa.Table.from_batches([batch]))
    return table["id"].to_pylist()


def read(path, split):
    batches = read_data_file(LocalFileIO(), "orc", str(path), SCHEMA, name_mapping=MAPPING, split=split)
    return [(row["_pos"], row["id"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_every_row_is_in_one_part(tmp_path, compression):
    path = tmp_path / "f.orc"
    values = written(path, compression)
    file = orc.ORCFile(path)
    assert file.nstripes > 2
    size = path.stat().st_size
    bounds = [*range(0, size, size // 7), size]
    parts = [read(path, (low, high - low)) for low, high in pairwise(bounds)]
    assert sum(bool(part) for part in parts) > 1
    assert [row for part in parts for row in part] == list(enumerate(values))
    assert read(path, None) == list(enumerate(values))


def test_a_footer_that_does_not_show_its_stripes(tmp_path, monkeypatch):
    path = tmp_path / "f.orc"
    values = written(path, "zlib")
    monkeypatch.setattr(orc_reader, "_CODECS", {})
    assert read(path, (0, 1)) == list(enumerate(values))
    assert read(path, (1, 1 << 40)) == []
