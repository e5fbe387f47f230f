"""What a crash costs at the next start: a driver that commits what a killed one has staged, beside one that has not to.

Both start from the same table and checkpoint directory, in turn; the clock runs from the start of the process to the commit
of the first new checkpoint. With few snapshots in the table and with many.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamlake.catalog.open import open_table
from streamlake.failpoints import VARIABLE
from streamlake.table.producers.append_files import AppendFiles
from tests.bench.data import events, write_files
from tests.bench.report import Figure
from tests.helpers.batch_write import write_files as write_data_files
from tests.helpers.spark import ROOT, spark_environment

Run = Callable[..., dict[str, Any]]
FEW = 20
ROWS = 10_000
STAGED = "committable-recorded=kill"
HELD = 2
"""Checkpoints in the table before the crash."""
SECONDS_MORE = 3.0


def bench_recovery(work: Path, repeat: int, snapshots: int, run: Run) -> tuple[list[Figure], dict[str, Any]]:
    """The figures are medians of `repeat` starts of each kind."""
    figures, runs = [], {}
    for count in (FEW, snapshots):
        seconds: dict[str, list[float]] = {"after a crash": [], "without": []}
        home, landing = work / "recovery", work / "recovery-landing"
        for folder in (home, landing):
            shutil.rmtree(folder, ignore_errors=True)
        _start(landing, home, HELD)
        _add_snapshots(home / "table", count)
        kept = work / "recovery-kept"
        for _ in range(repeat):
            for kind, taken in seconds.items():
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(home, kept)
                files = shutil.copytree(landing, work / "recovery-landing-kept", dirs_exist_ok=True)
                new = HELD
                if kind == "after a crash":
                    _start(landing, home, HELD + 1, dies=True)
                    new = HELD + 1
                _land(landing, new + 1)
                taken.append(run("recovery_run.py", landing, home, new)["seconds"])
                for folder, before in ((home, kept), (landing, files)):
                    shutil.rmtree(folder)
                    shutil.move(before, folder)
        crashed, clean = (statistics.median(each) for each in seconds.values())
        figures.append(
            Figure(
                f"first new commit after a crash, {count} snapshots: more than without",
                "s",
                round(crashed - clean, 2),
                None,
                "goal",
                "lower",
                SECONDS_MORE,
            )
        )
        runs[str(count)] = seconds
    return figures, {"recovery": runs}


def _land(landing: Path, files: int) -> None:
    write_files(landing, files, ROWS, events)


def _start(landing: Path, home: Path, files: int, *, dies: bool = False) -> None:
    _land(landing, files)
    command = [sys.executable, str(Path(__file__).with_name("recovery_run.py")), str(landing), str(home)]
    environment = {**os.environ, **spark_environment(), VARIABLE: STAGED if dies else ""}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    if (done.returncode == 0) == dies:
        raise SystemExit(f"the driver ended with {done.returncode}:\n{done.stderr[-4000:]}")


def _add_snapshots(location: Path, count: int) -> None:
    """Other writers' snapshots, of data files that nobody reads."""
    table = open_table(str(location))
    [file] = write_data_files(table, events(0, 1_000)).data_files
    for number in range(count - len(table.snapshots)):
        AppendFiles(table).append_file(replace(file, file_path=f"{file.file_path}-{number}")).commit()
