"""A driver that stops itself and all its processes (SIGSTOP) between staging and commit: `fenced_driver.py HOME MODE`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from streamlake.errors import FencedError
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.upsert_run import UpsertRun
from tests.crash import fenced_stream
from tests.helpers.spark import QUICK, build_session


def main(home: Path, mode: str) -> None:
    spark = build_session(home / "spark", extra=QUICK)
    run: type[SinkRun] = UpsertRun if mode == "upsert" else SinkRun
    stage = run.stage

    def stage_and_stand_still(self: Any, identity: Any, results: Any) -> Any:
        committable = stage(self, identity, results)
        if identity.checkpoint_id == fenced_stream.STANDING:
            (home / "standing").touch()
            os.killpg(os.getpgrp(), signal.SIGSTOP)
            time.sleep(2)  # the signal may come to another thread first
        return committable

    run.stage = stage_and_stand_still  # type: ignore[method-assign]
    try:
        fenced_stream.run(spark, home, mode)
    except FencedError as error:
        print(error, flush=True)
        sys.exit(fenced_stream.FENCED)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
