"""`streamlake warm-up`, and a start after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.command_line import environment
from tests.helpers.jvm import ARCHIVE_HOME, warm_up

START = """
import os
from streamlake.pipeline.spark.session import started_session
with started_session("test", is_lean=True, master="local[1]") as started:
    spark = started()
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    print([line.split()[-1] for line in open(f"/proc/{jvm}/maps") if line.rstrip().endswith(".jsa")])
    print(spark.conf.get("spark.python.daemon.module"))
"""


def test_classes_are_recorded_once_and_mapped_by_every_start(tmp_path: Path) -> None:
    done = warm_up(Path(os.environ.get(ARCHIVE_HOME, tmp_path)))
    assert done.returncode == 0, done.stderr
    [archive] = (done.cache / "streamlake").iterdir()
    assert archive.suffix == ".jsa"
    assert done.stdout.startswith(f"{archive}: ")
    assert [path.name for path in done.place.iterdir()] == ["cache"]

    env = environment({"XDG_CACHE_HOME": str(done.cache)})
    # The tests' own JVM options map the archive already.
    env.pop("SPARK_SUBMIT_OPTS")
    started = subprocess.run(
        [sys.executable, "-c", START],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert started.returncode == 0, started.stderr
    assert str(archive) in started.stdout
    assert "streamlake.pipeline.spark.worker_daemon" in started.stdout
