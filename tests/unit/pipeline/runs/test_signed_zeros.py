"""-0.0 equals 0.0 as a key, also where the two are partitions of their own."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.write.upsert.upsert_target import DELETE_MODES
from tests.helpers.invariants import check_table
from tests.helpers.local_upserts import LocalUpserts
from tests.helpers.tables import make_table


@pytest.mark.parametrize("partition_by", [("k",), ("k", "f"), ()], ids=str)
@pytest.mark.parametrize("delete_mode", DELETE_MODES)
@pytest.mark.parametrize("version", [2, 3])
def test_zeros_of_both_signs_are_one_key(tmp_path, version, delete_mode, partition_by):
    make_table(tmp_path / "t", "k double, f float, v string", partition_by, version)
    stream = LocalUpserts(str(tmp_path / "t"), key=["k", "f"], delete_mode=delete_mode)
    nan = math.nan
    first = {"k": [-0.0, 0.0, nan, 1.0, 2.0], "f": [-0.0, 3.0, -0.0, 0.0, nan], "v": ["a"] * 5}
    second = {"k": [0.0, -0.0, nan, 1.0, 2.0], "f": [0.0, 3.0, 0.0, -0.0, nan], "v": ["b"] * 5}
    for changes in (first, second, first, second):
        stream.checkpoint(
            pa.table(changes, pa.schema([("k", pa.float64()), ("f", pa.float32()), ("v", pa.string())]))
        )
        found = load_table(str(tmp_path / "t")).scan().to_arrow()
        assert found["v"].to_pylist() == changes["v"]
    check_table(open_table(str(tmp_path / "t")), files_exist=True)
