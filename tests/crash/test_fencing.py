"""A driver that was declared dead comes back after its successor has committed: it commits nothing, and is told why."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.commit.receipt import Outcome
from tests.crash import fenced_stream
from tests.helpers.invariants import check_table
from tests.helpers.processes import tail, wait_until
from tests.helpers.spark import started_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.crash
DRIVER = Path(__file__).with_name("fenced_driver.py")
LONGEST_SECONDS = 240
"""For a driver to start, and for one to end, on a machine that does other things as well."""


@pytest.mark.timeout(3 * LONGEST_SECONDS)
@pytest.mark.parametrize(("mode", "files"), [("append", 3), ("upsert", 2)])
def test_a_driver_that_comes_back_commits_nothing(
    mode: str, files: int, spark: SparkSession, tmp_path: Path
) -> None:
    """The successor is further (append), or has committed just the checkpoint that the other one had staged (upsert)."""
    fenced_stream.land(tmp_path, files)
    with started_driver(DRIVER, tmp_path, mode, home=tmp_path / "driver") as zombie:
        _wait(tmp_path, lambda: _is_standing(tmp_path, zombie), "the driver to stand still")
        sink = fenced_stream.run(spark, tmp_path, mode)
        assert sink.receipts[0].outcome == Outcome.RECOVERED
        assert len(sink.receipts) == files - fenced_stream.STANDING
        before = open_table(str(tmp_path / "table")).metadata
        os.killpg(zombie.pid, signal.SIGCONT)
        _wait(tmp_path, lambda: zombie.poll() is not None, "the driver that was woken to end")
    told = (tmp_path / "driver" / "stdout").read_text()
    assert zombie.returncode == fenced_stream.FENCED, _last_words(tmp_path)
    assert "another one took over pipeline 'p'" in told
    table = open_table(str(tmp_path / "table"))
    changed = [name for name, value in vars(before).items() if value != vars(table.metadata).get(name, value)]
    assert changed == []
    assert len(table.snapshots) == files
    check_table(table, files_exist=True)
    rows = load_table(str(tmp_path / "table")).scan().to_arrow()
    found = sorted(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert found == fenced_stream.expected(mode, files)


def _is_standing(home: Path, driver: subprocess.Popen[bytes]) -> bool:
    assert driver.poll() is None, f"it has ended with {driver.returncode}: {_last_words(home)}"
    if not (home / "standing").exists():
        return False
    state = Path(f"/proc/{driver.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def _wait(home: Path, condition: Callable[[], bool], what: str) -> None:
    try:
        wait_until(condition, LONGEST_SECONDS, what)
    except TimeoutError as error:
        raise AssertionError(f"{error}: {_last_words(home)}") from None


def _last_words(home: Path) -> str:
    """What the driver has said, the last first: where a report is cut, its cause is still there."""
    lines = tail(home / "driver" / "stderr", 60).splitlines()
    return "\n".join([tail(home / "driver" / "stdout", 5), *reversed(lines)])
