"""A driver that upserts and dies at a given point: `upsert_driver.py HOME POINT MODE/VERSION`."""

from __future__ import annotations

import sys
from pathlib import Path

from streamlake.pipeline.upsert_run import UpsertRun
from tests.crash import crash_points, upsert_stream, upsert_tasks
from tests.helpers.spark import build_session


def main(home: Path, point: str, deletes: str) -> None:
    spark = build_session(home / "spark", extra=upsert_tasks.SMALL_BATCHES)
    if point == crash_points.WRITING:
        upsert_tasks.die_while_writing(home / "table")
    else:
        crash_points.arm(point, UpsertRun)
    upsert_stream.run(spark, home, upsert_stream.Deletes.of(deletes))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
