"""A real MariaDB for tests: a throw-away server on 127.0.0.1 with a binlog of rows, in a directory of its own.

The server refuses to be root, so where the tests are, it runs as `mysql` or, without such a user, as `nobody`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pymysql

from tests.helpers.processes import free_ports, kill_group, tail
from tests.helpers.rings import PartUnavailableError

USER, PASSWORD = "streamlake", "none"
_START_TIMEOUT_SECONDS = 90
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "server-id": "1",
    "log-bin": "log",
    "binlog-format": "row",
    "binlog-row-image": "full",
    "default-time-zone": "+05:45",  # nothing may depend on it
    "character-set-server": "utf8mb4",
    "innodb-flush-log-at-trx-commit": "0",
}
_ACCOUNT_SQL = f"create user {USER}@'%' identified by '{PASSWORD}';\ngrant all on *.* to {USER}@'%';\n"


class MariaDbServer:
    """A running server; its user may do anything."""

    def __init__(self) -> None:
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

    def connect(self, **options: Any) -> Any:
        """A connection that commits each statement."""
        given = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": USER,
            "password": PASSWORD,
            "autocommit": True,
        }
        return pymysql.connect(**{**given, **options})

    def execute(self, *statements: str) -> None:
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query gives."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def __enter__(self) -> MariaDbServer:
        server, installer = _program("mariadbd"), _program("mariadb-install-db")
        self._home = Path(tempfile.mkdtemp(prefix="streamlake-mariadb-"))
        account = _account()
        data, log_path, first = self._home / "data", self._home / "server.log", self._home / "first.sql"
        first.write_text(_ACCOUNT_SQL)
        if account:
            os.chown(self._home, account["user"], account["group"])
            first.chmod(0o644)
        quiet: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "cwd": self._home,
            "start_new_session": True,
            **account,
        }
        with open(log_path, "ab") as log:
            command = [installer, "--no-defaults", f"--datadir={data}", "--skip-test-db"]
            made = subprocess.run(
                [*command, "--auth-root-authentication-method=normal"], stdout=log, stderr=log, **quiet
            )
            if made.returncode == 0:
                settings = {**_SETTINGS, "port": self.port, "datadir": data, "socket": self._home / "socket"}
                settings |= {"pid-file": self._home / "pid", "init-file": first}
                options = [f"--{name}={value}" for name, value in settings.items()]
                self._process = subprocess.Popen(
                    [server, "--no-defaults", *options], stdout=log, stderr=log, **quiet
                )
        try:
            self._wait_until_ready(log_path)
        except PartUnavailableError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            kill_group(process)
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None

    def _wait_until_ready(self, log: Path) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            try:
                self.connect(connect_timeout=5).close()
                return
            except pymysql.err.OperationalError:
                time.sleep(0.1)
        raise PartUnavailableError(f"MariaDB did not start; the end of its log:\n{tail(log)}")


def _program(name: str) -> str:
    """Raises PartUnavailableError where it is not installed."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/libexec")
    if found is None:
        raise PartUnavailableError(
            f"there is no {name}: install MariaDB's server (Debian, Ubuntu: apt-get install mariadb-server)"
        )
    return found


def _account() -> dict[str, Any]:
    """Whom the server runs as, in the words of `subprocess`; nothing where that is the tests' own user."""
    if os.geteuid() != 0:
        return {}
    for name in ("mysql", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise PartUnavailableError("MariaDB refuses to run as root, and there is no user 'mysql' or 'nobody'")
