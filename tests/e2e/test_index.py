"""`streamlake index` as a user starts it, on a table so large that Spark builds the index."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamlake import create_table
from tests.helpers.batch_write import append
from tests.helpers.command_line import streamlake, without_jvm_notice

ROWS = 600_000


@pytest.mark.spark
def test_an_index_is_built_by_spark_and_checked_without(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "id long, v long", format_version=3).table
    for part in np.array_split(np.arange(ROWS), 4):
        append(table, pa.table({"id": part, "v": part}))
    done = streamlake("index", "rebuild", "t", "--key", "id", "--json", cwd=tmp_path)
    assert (done.returncode, without_jvm_notice(done.stderr)) == (0, [])
    built = json.loads(done.stdout)
    assert (built["entries"], built["is_rebuilt"], built["missing_runs"]) == (ROWS, True, [])
    assert built["runs"] == built["buckets"]
    done = streamlake("index", "check", "t", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    checked = json.loads(done.stdout)
    assert (checked["is_good"], checked["live_rows"], checked["dead_places"]) == (True, ROWS, 0)
    done = streamlake("index", "status", "t", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "600,000" in done.stdout
    done = streamlake("index", "check", "t", "--key", "v", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "has no key index over v" in done.stderr
