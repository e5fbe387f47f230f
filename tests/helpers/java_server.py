"""A Java program that serves on 127.0.0.1 for tests: started, waited for, and ended, its output in a log file."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.helpers.jars import Part, jars
from tests.helpers.jvm import java_program
from tests.helpers.processes import stop, tail
from tests.helpers.rings import PartUnavailableError

FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_TIMEOUT_SECONDS = 90
_WARNINGS_ONLY = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


def on_class_path(part: Part) -> list[str]:
    """Options of a JVM whose program is in the jars of `part`."""
    return [_WARNINGS_ONLY, "-cp", ":".join(map(str, jars(part)))]


class JavaServer:
    """The server called `name`; its files go to `home`, its output to `log`.

    The part that is missing, or the server that does not come up, is a PartUnavailableError with the end of the log.
    """

    def __init__(self, name: str, home: Path, log: Path, java: str | None = None) -> None:
        self.environment: dict[str, str] = {}
        """Environment variables of its own, beside those of this process."""
        self.log = log
        self._name = name
        self._home = home
        self._java = java
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, arguments: Sequence[str]) -> None:
        """Run a program of the server's to its end, such as one that formats its storage."""
        with open(self.log, "ab") as log:
            subprocess.run(
                self._command(arguments),
                check=True,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment},
            )

    def start(self, arguments: Sequence[str], is_ready: Callable[[], bool]) -> None:
        """Start the program `arguments` and return once it `is_ready`."""
        command = self._command(arguments)
        self._home.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._home,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            if is_ready():
                return
            time.sleep(0.05)
        self.stop()
        raise PartUnavailableError(f"{self._name} did not start; the end of its log:\n{tail(self.log)}")

    def stop(self) -> None:
        """End the process; `start` may be called again."""
        if self._process is not None:
            stop(self._process)
            self._process = None

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [self._java or java_program(), *FLAGS, *arguments]
