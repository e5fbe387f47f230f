"""A real PostgreSQL for tests: a throw-away cluster on 127.0.0.1 with logical decoding, in a directory of its own.

The server refuses to be root, so where the tests are, it runs as `postgres` or, without such a user, as `nobody`.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.helpers.postgres_binaries import server_home
from tests.helpers.processes import free_ports, kill_group, tail
from tests.helpers.rings import PartUnavailableError

_START_TIMEOUT_SECONDS = 60
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "16",
    "max_replication_slots": "16",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "50",
    "timezone": "Asia/Kathmandu",  # nothing may depend on it
    "log_timezone": "UTC",
}


class PostgresServer:
    """A running cluster. `dsn()` is what clients connect with; the superuser `postgres` needs no password."""

    def __init__(self) -> None:
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

    def dsn(self, database: str = "postgres") -> str:
        """A connection string of libpq."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={database}"

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[Any]:
        """A connection; `autocommit` unless said otherwise."""
        return psycopg.connect(self.dsn(database), **{"autocommit": True, **options})

    @contextlib.contextmanager
    def database(self, name: str) -> Iterator[psycopg.Connection[Any]]:
        """A new database and a connection to it; gone afterwards, whoever is still connected."""
        with self.connect() as admin:
            admin.execute(f'create database "{name}"')
        try:
            with self.connect(name) as connection:
                yield connection
        finally:
            with self.connect() as admin:
                admin.execute(f'drop database "{name}" with (force)')

    def __enter__(self) -> PostgresServer:
        server = server_home()
        account: dict[str, Any] = _account()
        self._home = Path(tempfile.mkdtemp(prefix="streamlake-postgres-"))
        if account:
            # The cache is in the home of root, where nobody else may look.
            server = Path(shutil.copytree(server, self._home / "server", symlinks=True))
            os.chown(self._home, account["user"], account["group"])
        data, log_path = self._home / "data", self._home / "server.log"
        environment = {**os.environ, "HOME": str(self._home), "LC_ALL": "C"}
        quiet: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "cwd": self._home,
            "env": environment,
            "start_new_session": True,
            **account,
        }
        with open(log_path, "ab") as log:
            command = [str(server / "bin" / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust"]
            command += ["-E", "UTF8", "--locale=C", "--no-sync"]
            made = subprocess.run(command, stdout=log, stderr=log, **quiet)
            if made.returncode == 0:
                settings = [f"--{name}={value}" for name, value in {**_SETTINGS, "port": self.port}.items()]
                self._process = subprocess.Popen(
                    [str(server / "bin" / "postgres"), "-D", str(data), *settings],
                    stdout=log,
                    stderr=log,
                    **quiet,
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
            # At once, and without a last checkpoint: nobody starts this cluster again.
            process.send_signal(signal.SIGQUIT)
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
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise PartUnavailableError(f"PostgreSQL did not start; the end of its log:\n{tail(log)}")


def _account() -> dict[str, Any]:
    """Whom the server runs as, in the words of `subprocess`; nothing where that is the tests' own user."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise PartUnavailableError(
        "PostgreSQL refuses to run as root, and there is no user 'postgres' or 'nobody'"
    )
