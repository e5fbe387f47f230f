"""The other writer of the soak: `soak_neighbour.py HOME SEED`, with Iceberg's own runtime.

Until HOME/stop is there it appends rows of its own, compacts the table and expires its snapshots, in a drawn order, and
tells what came of each in HOME/neighbour.jsonl. A row that it appends has an id below zero, which the stream never has.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.soak_table import NEIGHBOUR_LOG, STOP, TABLE
from tests.helpers.jars import iceberg_runtime, jars
from tests.helpers.spark import ICE_CATALOG, build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = f"{ICE_CATALOG}.{TABLE}"
PAUSE_SECONDS = (1, 6)
KEPT_SNAPSHOTS = 5
CALL = f"CALL {ICE_CATALOG}.system"
COMPACT = f"{CALL}.rewrite_data_files(table => '{TABLE}', options => map('min-input-files', '2', 'partial-progress.enabled', 'false'))"
EXPIRE = f"{CALL}.expire_snapshots(table => '{TABLE}', older_than => now(), retain_last => {KEPT_SNAPSHOTS})"
WORK = ("append", "append", "append", "compact", "expire")
MEMORY = {"spark.driver.memory": "1g"}


def main(home: Path, seed: int) -> None:
    draw = random.Random(seed)
    spark = build_session(home, master="local[1]", runtime_jars=jars(iceberg_runtime()), extra=MEMORY)
    appended = 0
    with open(home / NEIGHBOUR_LOG, "a", buffering=1) as log:
        while not (home / STOP).exists():
            what = draw.choice(WORK)
            appended += what == "append"
            error = _done(spark, what, -appended)
            log.write(json.dumps({"what": what, "id": -appended, "error": error}) + "\n")
            time.sleep(draw.uniform(*PAUSE_SECONDS))
    spark.stop()


def _done(spark: SparkSession, what: str, row_id: int) -> str | None:
    """Do it; what went wrong, None where nothing did."""
    insert = f"INSERT INTO {NAME} VALUES ({row_id}L, {-row_id % 2}, 'neighbour')"
    try:
        spark.sql({"append": insert, "compact": COMPACT, "expire": EXPIRE}[what]).collect()
    except Exception as error:  # a commit that lost its race is part of the story
        return str(error).splitlines()[0][:300]
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
