"""Processes that tests start: free ports, waiting for them, and an end by process id."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports of 127.0.0.1 that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def is_listening(port: int) -> bool:
    """True when something accepts connections on `port` of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: Callable[[], bool], timeout_seconds: float, what: str) -> None:
    """Poll `condition` until it holds; TimeoutError naming `what` after `timeout_seconds`."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_seconds} s for {what}")
        time.sleep(0.05)


def stop(process: subprocess.Popen[bytes], grace_seconds: float = 10) -> None:
    """End `process` and everything in its process group: politely, then with SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the process group that `process` leads (it must have been started with start_new_session)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def has_processes(marker: str) -> bool:
    """Whether a process lives that was started with this text in its environment, in whatever group it is by now."""
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if marker.encode() in environment.read_bytes():
                return True
    return False


def tail(path: Path, lines: int = 40) -> str:
    """The last `lines` of a log file, or a note that there is none."""
    if not path.exists():
        return f"(no log at {path})"
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
