"""`streamlake warm-up`: prepares a machine or an image once, so that pipelines start faster."""

from __future__ import annotations

import sys
import time

from streamlake.cli.views.rendering import human_size
from streamlake.pipeline.definition.warming import warm_up


def run() -> int:
    """Record what the JVM loads; returns the exit code."""
    began = time.monotonic()
    path, size = warm_up()
    sys.stdout.write(
        f"{path}: {human_size(size)}, {time.monotonic() - began:.0f} s; `streamlake run` finds it by itself\n"
    )
    return 0
