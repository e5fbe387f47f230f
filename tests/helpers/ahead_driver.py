"""A driver of a LocalStream in a process of its own: `ahead_driver.py HOME AHEAD ROWS`, to be killed from outside."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.helpers.local_stream import LocalStream

if __name__ == "__main__":
    home, ahead, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    stream = LocalStream(home, [(row, f"v{row}") for row in range(rows)], ahead=ahead)
    stream.start()
    stream.finish()
