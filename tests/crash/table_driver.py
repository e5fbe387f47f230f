"""A driver that streams a table into another: `table_driver.py HOME`; small steps, so that it dies in the middle of snapshots."""

from __future__ import annotations

import sys
from pathlib import Path

from streamlake import IcebergSink, IcebergSource
from tests.helpers.spark import QUICK, build_session


def main(home: Path) -> None:
    spark = build_session(home / "spark", extra=QUICK)
    source = IcebergSource(
        str(home / "source"), options={"max-rows-per-trigger": "25", "watermark-column": "at"}
    )
    sink = IcebergSink(str(home / "copy"), create=True)
    query = sink.start(source, checkpoint_location=str(home / "checkpoint"), trigger={"availableNow": True})
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
