"""The lock of a table in a Hive metastore, as Iceberg's Java library takes it.

Exclusive, waited for with growing pauses, and kept alive by heartbeats while a commit runs: the metastore
gives a lock to the next in line when its heartbeats stay out. Writers of one process queue before they ask.
"""

from __future__ import annotations

import getpass
import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from threading import Event, Lock, Thread
from typing import Any

from streamlake import clock, ids
from streamlake.catalog.metastores.hive_clients import HiveClients
from streamlake.errors import CommitConflictError, StorageError
from streamlake.options import int_property

_LOG = logging.getLogger(__name__)
_PREFIX = "iceberg.hive.lock-"
_UNLOCK_ATTEMPTS = 3


@dataclass(frozen=True)
class LockOptions:
    """`iceberg.hive.lock-*`, in milliseconds."""

    timeout_ms: int
    check_min_wait_ms: int
    check_max_wait_ms: int
    creation_timeout_ms: int
    creation_min_wait_ms: int
    creation_max_wait_ms: int
    heartbeat_interval_ms: int

    @staticmethod
    def parse(properties: Mapping[str, Any]) -> LockOptions:
        """The options among a catalog's properties, with Iceberg's defaults. Raises InvalidOptionError."""
        return LockOptions(
            int_property(properties, f"{_PREFIX}timeout-ms", 180_000),
            int_property(properties, f"{_PREFIX}check-min-wait-ms", 50),
            int_property(properties, f"{_PREFIX}check-max-wait-ms", 5_000),
            int_property(properties, f"{_PREFIX}creation-timeout-ms", 180_000),
            int_property(properties, f"{_PREFIX}creation-min-wait-ms", 50),
            int_property(properties, f"{_PREFIX}creation-max-wait-ms", 5_000),
            int_property(properties, f"{_PREFIX}heartbeat-interval-ms", 240_000, minimum=1),
        )


class HiveLock:
    """One lock of `database.table`, for one commit. `turn` makes the writers of this process queue."""

    def __init__(
        self, clients: HiveClients, database: str, table: str, options: LockOptions, turn: Lock
    ) -> None:
        self._clients = clients
        self._database = database
        self._table = table
        self._options = options
        self._turn = turn
        self._agent = f"streamlake-{ids.new_uuid()}"
        self._id: int | None = None
        self._asked = 0
        self._ended = Event()
        self._heart: Thread | None = None
        self._failure: Exception | None = None

    def acquire(self) -> None:
        """Take the lock. Raises CommitConflictError when others hold it for too long, StorageError."""
        self._turn.acquire()
        try:
            self._acquire()
        except BaseException:
            self.release()
            raise
        self._heart = Thread(target=self._beat, name=f"lock of {self._database}.{self._table}", daemon=True)
        self._heart.start()

    def is_lost(self) -> Exception | None:
        """Why the lock may have gone to somebody else; None while it is ours."""
        return self._failure

    def release(self) -> None:
        """Give the lock up. An error leaves it to the metastore's timeout."""
        self._ended.set()
        try:
            for left in reversed(range(_UNLOCK_ATTEMPTS)):
                try:
                    self._unlock()
                    break
                except Exception as error:
                    if not left:
                        raise
                    _LOG.info("releasing the lock of %s.%s: %s", self._database, self._table, error)
                    self._clients.forget()
        except Exception as error:  # noqa: BLE001
            _LOG.warning("the lock of %s.%s could not be released: %s", self._database, self._table, error)
        finally:
            self._turn.release()

    def _unlock(self) -> None:
        """Give up every lock that is ours: a request without an answer may have been done as well."""
        ours = [] if self._id is None else [self._id]
        if self._asked != 1 or not ours:
            ours = [lockid for lockid, _ in self._found()]
        for lockid in ours:
            try:
                with self._clients.client() as client:
                    client.unlock(_types().UnlockRequest(lockid=lockid))
            except Exception as error:
                if type(error).__name__ != "NoSuchLockException":
                    raise

    def _acquire(self) -> None:
        types = _types()
        state = self._create()
        deadline = clock.monotonic() + self._options.timeout_ms / 1000
        wait = self._options.check_min_wait_ms
        while state == types.LockState.WAITING:
            left = deadline - clock.monotonic()
            if left <= 0:
                raise CommitConflictError(
                    f"{self._database}.{self._table}: other writers held the table's lock for "
                    f"{self._options.timeout_ms} ms; if none is at work, a lock was left behind and the "
                    "metastore will end it (SHOW LOCKS in Hive lists them)"
                )
            clock.sleep(min(wait / 1000, left))
            wait = min(self._options.check_max_wait_ms, wait * 3 // 2 + 1)
            state = self._checked()
        if state != types.LockState.ACQUIRED:
            raise CommitConflictError(
                f"{self._database}.{self._table}: the metastore did not give the table's lock (state {state})"
            )

    def _create(self) -> int:
        """Ask for the lock; its state. After a lost answer the lock is looked for before asking again."""
        types = _types()
        part = types.LockComponent(
            type=types.LockType.EXCLUSIVE,
            level=types.LockLevel.TABLE,
            dbname=self._database,
            tablename=self._table,
        )
        request = types.LockRequest(
            component=[part], user=getpass.getuser(), hostname=socket.gethostname(), agentInfo=self._agent
        )
        deadline = clock.monotonic() + self._options.creation_timeout_ms / 1000
        wait = self._options.creation_min_wait_ms
        while True:
            self._asked += 1
            try:
                with self._clients.client() as client:
                    answer = client.lock(request)
                self._id = int(answer.lockid)
                return int(answer.state)
            except Exception as error:
                found, state = self._found_in_spite_of(error)
                if found is not None:
                    self._id = found
                    return state
                if clock.monotonic() >= deadline:
                    raise StorageError(
                        f"{self._database}.{self._table}: the metastore gives no lock: {error}"
                    ) from error
            clock.sleep(wait / 1000)
            wait = min(self._options.creation_max_wait_ms, wait * 2)

    def _found_in_spite_of(self, error: Exception) -> tuple[int | None, int]:
        if "HIVE_LOCKS" in str(error):
            raise StorageError(
                f"{self._database}.{self._table}: the metastore's database has no table of locks ({error}); "
                "use one that supports transactions"
            ) from error
        try:
            return next(iter(self._found()), (None, 0))
        except Exception:  # noqa: BLE001
            return None, 0

    def _found(self) -> list[tuple[int, int]]:
        """The ids and states of the locks that bear our mark, one that is given first."""
        request = _types().ShowLocksRequest(dbname=self._database, tablename=self._table, isExtended=False)
        with self._clients.client() as client:
            locks = client.show_locks(request).locks or ()
        ours = [(int(lock.lockid), int(lock.state)) for lock in locks if lock.agentInfo == self._agent]
        return sorted(ours, key=lambda lock: lock[1] != _types().LockState.ACQUIRED)

    def _checked(self) -> int:
        try:
            if self._asked > 1:
                # A request without an answer has come late: its lock may be the one that we wait for.
                for lockid, state in self._found()[:1]:
                    self._id = lockid
                    return state
            with self._clients.client() as client:
                return int(client.check_lock(_types().CheckLockRequest(lockid=self._id)).state)
        except Exception as error:
            raise StorageError(f"{self._database}.{self._table}: waiting for the lock: {error}") from error

    def _beat(self) -> None:
        pause = self._options.heartbeat_interval_ms / 2000
        while not self._ended.wait(pause):
            pause = self._options.heartbeat_interval_ms / 1000
            try:
                with self._clients.client() as client:
                    client.heartbeat(_types().HeartbeatRequest(lockid=self._id))
            except Exception as error:  # noqa: BLE001
                self._failure = error
                return


def _types() -> Any:
    return import_module("hive_metastore.ttypes")
