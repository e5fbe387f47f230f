"""A driver whose upsert tasks are killed in their first attempt: `upsert_attempts_driver.py HOME MODE/VERSION`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.crash import upsert_stream, upsert_tasks
from tests.helpers.spark import QUICK, build_session


def main(home: Path, deletes: str) -> None:
    spark = build_session(home / "spark", master="local[2,4]", extra={**QUICK, **upsert_tasks.SMALL_BATCHES})
    upsert_tasks.install(home / "table", dict.fromkeys((0, 1), upsert_tasks.kill_worker))
    upsert_stream.run(spark, home, upsert_stream.Deletes.of(deletes))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
