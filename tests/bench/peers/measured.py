"""A command and all processes below it, measured from outside: wall time, peak of resident memory, CPU time.

The command leads a session of its own, and whatever belongs to it is in that session: Spark's JVM and Python workers,
too. Resident memory is summed over processes, so that pages which they share count in each; the proportional share, where
such a page counts once, is looked at less often, because the kernel has to count it.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers.processes import kill_group, tail

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_INTERVAL_SECONDS = 0.1
_SHARES_EVERY = 15
"""Samples between two looks at proportional shares."""


class RunFailedError(Exception):
    """A measured command ended with an error, or ran for too long; the message has the end of what it said."""


@dataclass
class Process:
    """One process as it was last seen: its program, what of it runs, when it was first seen, its peak of resident memory."""

    program: str
    module: str = ""
    first_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0


@dataclass
class Processes:
    """What was seen of a session's processes: `peak_bytes` of all together, CPU seconds by program."""

    leader: int
    started: float
    peak_bytes: int = 0
    peak_share_bytes: int = 0
    peak_parts: dict[str, int] = field(default_factory=dict)
    _seen: dict[int, Process] = field(default_factory=dict)

    def look(self, at_shares: bool = False) -> None:
        """Take one sample."""
        resident: dict[str, int] = {}
        shares = 0
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                name, _, rest = Path(entry.path, "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue
            values = rest.split()
            if int(values[3]) != self.leader:
                continue
            program = _program(entry.path, name)
            if program is None:
                continue
            size = int(values[21]) * _PAGE
            resident[program] = resident.get(program, 0) + size
            # A process may become another program.
            age = round(time.monotonic() - self.started, 2)
            process = self._seen.setdefault(int(entry.name), Process(program, first_seconds=age))
            if not process.module or process.program != program:
                process.module = _module(entry.path)
            process.program, process.peak_bytes = program, max(process.peak_bytes, size)
            shares += _share(entry.path) if at_shares else 0
            process.cpu_seconds = (int(values[11]) + int(values[12])) / _TICKS
        self.peak_share_bytes = max(self.peak_share_bytes, shares)
        if sum(resident.values()) > self.peak_bytes:
            self.peak_bytes, self.peak_parts = sum(resident.values()), resident

    @property
    def cpu_seconds(self) -> dict[str, float]:
        """User and system time by program; a process's last moments may be missing."""
        found: dict[str, float] = {}
        for process in self._seen.values():
            found[process.program] = found.get(process.program, 0) + process.cpu_seconds
        return {program: round(seconds, 2) for program, seconds in found.items()}

    @property
    def each(self) -> list[dict[str, Any]]:
        """What is known of every process that did anything worth telling, in order of their start."""
        return [
            {
                "program": each.program,
                "module": each.module,
                "first_seconds": each.first_seconds,
                "cpu_seconds": each.cpu_seconds,
                "peak_mb": each.peak_bytes >> 20,
            }
            for _, each in sorted(self._seen.items())
            if each.cpu_seconds >= 0.2
        ]

    def kill(self) -> None:
        """End what is left of the session."""
        for pid in self._seen:
            try:
                if pid != self.leader and os.getsid(pid) == self.leader:
                    os.kill(pid, 9)
            except ProcessLookupError:
                continue


def _program(process: str, name: str) -> str | None:
    """None for what is about to become another program, and shares its parent's memory until then."""
    if name == "java" or "python" in name:
        return "java" if name == "java" else "python"
    try:
        return None if os.readlink(f"{process}/exe").endswith("java") else "other"
    except OSError:
        return None


def _share(process: str) -> int:
    """Proportional share of memory in bytes; 0 for a process that is gone."""
    try:
        lines = Path(process, "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def _module(process: str) -> str:
    """The module, class or script that a command line ends with."""
    try:
        arguments = Path(process, "cmdline").read_text().split("\0")
    except OSError:
        return ""
    named = [each for each in arguments[1:] if each and not each.startswith("-") and len(each) < 100]
    modules = [
        Path(each).name for each in named if each.startswith("pyspark.") or each.endswith((".py", "Peer"))
    ]
    return modules[-1] if modules else ""


def measured(
    command: Sequence[str], home: Path, environment: Mapping[str, str], timeout_seconds: float
) -> dict[str, Any]:
    """Run `command` in `home`; the JSON object that it prints last, with `seconds`, `peak_mb` and `cpu_seconds`.

    Raises RunFailedError when it fails.
    """
    home.mkdir(parents=True)
    out, err = home / "stdout", home / "stderr"
    with open(out, "wb") as to_out, open(err, "wb") as to_err:
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=home,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=to_out,
            stderr=to_err,
            start_new_session=True,
        )
        seen, ended = Processes(process.pid, started), threading.Event()

        def watch() -> None:
            samples = 0
            while not ended.wait(_INTERVAL_SECONDS):
                samples += 1
                seen.look(at_shares=samples % _SHARES_EVERY == 0)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            code: int | None = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            code = None
        seconds = time.monotonic() - started
        ended.set()
        watcher.join()
        kill_group(process)
        seen.kill()
    if code != 0:
        how = f"ran over {timeout_seconds} s" if code is None else f"ended with {code}"
        raise RunFailedError(f"{Path(command[0]).name} {how}\n{tail(out, 20)}\n{tail(err, 40)}")
    result: dict[str, Any] = json.loads(out.read_text().strip().splitlines()[-1])
    return {
        **result,
        "seconds": round(seconds, 2),
        "peak_mb": seen.peak_bytes >> 20,
        "peak_share_mb": seen.peak_share_bytes >> 20,
        "peak_parts_mb": {name: size >> 20 for name, size in seen.peak_parts.items()},
        "cpu_seconds": seen.cpu_seconds,
        "processes": seen.each,
    }
