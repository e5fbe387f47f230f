"""A driver that is started again: `python recovery_run.py LANDING HOME [NEW]`.

Appends the files of LANDING, one per checkpoint, to HOME/table, and prints as JSON how long it took from the start of the
process to the commit of the checkpoint NEW (without it: to the end).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

STARTED = time.monotonic()

from streamlake import IcebergSink  # noqa: E402
from streamlake.commit.receipt import CommitReceipt  # noqa: E402
from tests.bench.data import DDL  # noqa: E402
from tests.helpers.spark import build_session  # noqa: E402


def main() -> None:
    landing, home = sys.argv[1], Path(sys.argv[2])
    new = int(sys.argv[3]) if len(sys.argv) > 3 else None
    spark = build_session(home / "session")
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(landing)
    reached = threading.Event()
    outcomes: dict[int, str] = {}
    seconds: list[float] = []

    def note(receipt: CommitReceipt) -> None:
        outcomes[receipt.checkpoint_id] = receipt.outcome.value
        if receipt.checkpoint_id == new:
            seconds.append(time.monotonic() - STARTED)
            reached.set()

    sink = IcebergSink(str(home / "table"), create=True, on_commit=note)
    query = sink.start(frame, checkpoint_location=str(home / "checkpoint"), trigger={"availableNow": True})
    query.awaitTermination()
    spark.stop()
    if new is not None:
        assert reached.is_set(), outcomes
        print(json.dumps({"seconds": round(seconds[0], 2), "outcomes": outcomes}))


if __name__ == "__main__":
    main()
