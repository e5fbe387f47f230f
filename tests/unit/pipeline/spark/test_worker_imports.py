"""What a Spark worker has to load before it can run a task of the sink: seconds of every start."""

from __future__ import annotations

import base64
import subprocess
import sys

from pyspark import cloudpickle

from streamlake.pipeline.spark.task_outcome import outcome_task, task_ids
from streamlake.tasks.row_kind_task import reading_kinds
from streamlake.write.upsert.upsert_task import upsert_task

LOADS = """
import base64, pickle, sys
pickle.loads(base64.b64decode(sys.stdin.read()))
print(*sorted({name.partition(".")[0] for name in sys.modules}))
print(*sorted(name for name in sys.modules if name.startswith("streamlake.")))
"""


def test_a_stream_of_rows_loads_no_source_and_no_catalog() -> None:
    task = outcome_task(reading_kinds(upsert_task(None, task_ids), "t: column 'op'"))  # type: ignore[arg-type]
    sent = base64.b64encode(cloudpickle.dumps(task)).decode()
    done = subprocess.run(
        [sys.executable, "-c", LOADS], input=sent, capture_output=True, text=True, check=True
    )
    packages, modules = (set(line.split()) for line in done.stdout.splitlines())
    assert "streamlake.write.upsert.upsert_task" in modules
    assert not packages & {"kafka", "typer", "rich", "pyiceberg"}
    assert not [
        name for name in modules if name.split(".")[1] in {"source", "catalog", "commit", "table", "cli"}
    ]
