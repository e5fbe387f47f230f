"""A driver that streams into a table and dies at a given point: `driver.py HOME POINT`. No Iceberg jar anywhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.crash import crash_points, stream
from tests.helpers.spark import build_session


def main(home: Path, point: str) -> None:
    spark = build_session(home / "spark")
    change = None
    if point == crash_points.WRITING:
        row = stream.ROWS_PER_FILE * crash_points.CRASHING_CHECKPOINT + stream.ROWS_PER_FILE // 2
        task = crash_points.dying_task(home / "table", os.getpgrp(), row)
        change = lambda frame: frame.mapInArrow(task, stream.DDL)  # noqa: E731
    else:
        crash_points.arm(point)
    stream.run(spark, home, change)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
