"""An upserting driver on a large table: `python restart_run.py write|first SOURCE HOME [BASE]`.

`write` upserts the files of SOURCE, one per checkpoint, into a table over the data files of the table at BASE, and prints
a line per commit until it is killed. `first` starts the same query again and prints, as JSON, how long its first commit
takes from the start of the query (the Spark session is there already), and how many rows of data files it read for it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from streamlake import IcebergSink
from streamlake.commit.receipt import CommitReceipt, Outcome
from tests.bench.data import DDL
from tests.helpers.forks import table_of_same_files
from tests.helpers.spark import build_session


def main() -> None:
    what, source, home = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    location = home / "table"
    if not location.exists():
        table_of_same_files(location, DDL, Path(sys.argv[4]), {"format-version": "3"})
    spark = build_session(home / f"session-{what}")
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(source)
    commits: list[tuple[float, CommitReceipt]] = []

    def note(receipt: CommitReceipt) -> None:
        # A checkpoint that was in the table when the driver was killed is skipped, which is no commit.
        if receipt.outcome != Outcome.SKIPPED:
            commits.append((time.monotonic(), receipt))
        print(f"checkpoint {receipt.checkpoint_id} {receipt.outcome.value}", file=sys.stderr, flush=True)

    sink = IcebergSink(str(location), mode="upsert", key=["id"], on_commit=note)
    started = time.monotonic()
    query = sink.start(frame, checkpoint_location=str(home / "checkpoint"), trigger={"availableNow": True})
    if what == "write":
        query.awaitTermination()
        return
    while not commits and query.isActive:
        time.sleep(0.02)
    query.stop()
    at, receipt = commits[0]
    print(
        json.dumps(
            {
                "first_commit_seconds": round(at - started, 2),
                "outcome": receipt.outcome.value,
                "rows": receipt.rows,
                "rows_indexed": receipt.counters["rows-indexed"],
                "rebuilt": receipt.counters["rows-indexed"] > 0,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
