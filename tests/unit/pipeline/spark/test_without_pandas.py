"""pyarrow makes arrays without pandas, and with it for whoever imports it later."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from streamlake.pipeline.spark.without_pandas import decide_about_pandas
decide_about_pandas()
import pyarrow as pa
pa.array([1, 2]), pa.array(["x", None])
import streamlake.tasks.table_tasks, streamlake.tasks.direct_reader
assert "pandas" not in sys.modules
from importlib.util import find_spec
assert find_spec("pandas") is not None and "pandas" not in sys.modules
import pandas as pd
assert pa.array(pd.Series([1.0, None])).null_count == 1
assert pa.Table.from_pandas(pd.DataFrame({"a": [1, 2]})).to_pandas()["a"].sum() == 3
print("ok")
"""


def test_pandas_is_loaded_by_those_alone_who_use_it() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stdout == "ok\n", done.stderr
