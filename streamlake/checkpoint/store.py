"""The store of staged Committables, below the table's metadata folder.

A Committable stays until the next checkpoint has committed. Any machine that can write the table can reach
that folder, whatever the catalog, so a driver that is started elsewhere finds what its predecessor staged.
Invariant: the Committable of checkpoint N is removed only after N+1 has committed, because Spark may still
replay N.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from streamlake.checkpoint.committable import Committable, committable_from_bytes, committable_to_bytes
from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import MissingFileError
from streamlake.failpoints import failpoint
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.storage.file_io import FileIO
from streamlake.storage.locations import TableLocations


class CommittableStore:
    """The staged Committables of one job on one branch of one table; each branch has its own folder."""

    def __init__(self, io: FileIO, locations: TableLocations, job_id: str, branch: str = MAIN_BRANCH) -> None:
        self._io = io
        self._locations = locations
        self._owner = job_id if branch == MAIN_BRANCH else f"{job_id}@{quote(branch, safe='')}"

    def record(self, committable: Committable) -> None:
        """Make a Committable durable. A second attempt of the same checkpoint replaces the first."""
        self._io.write_bytes(self.path(committable.identity.checkpoint_id), committable_to_bytes(committable))
        failpoint("committable-recorded")

    def pending(self) -> list[Committable]:
        """All staged Committables, oldest checkpoint first."""
        found = _staged(self._io, self._locations.committables(self._owner))
        return sorted(found, key=lambda committable: committable.identity.checkpoint_id)

    def staged(self, checkpoint_id: int) -> Committable | None:
        """The Committable that is staged under a checkpoint id; None where there is none."""
        path = self.path(checkpoint_id)
        try:
            data = self._io.read_bytes(path)
        except MissingFileError:
            return None
        return committable_from_bytes(data, path) if data else None  # empty: withdrawn

    def remove(self, identity: CheckpointIdentity) -> None:
        """Remove a Committable. Its manifests stay, because the table refers to them."""
        self._io.delete(self.path(identity.checkpoint_id))
        failpoint("committable-removed")

    def withdraw(self, identity: CheckpointIdentity) -> None:
        """Remove a Committable that must never be committed.

        It is emptied first, because a loss of power may undo a deletion.
        """
        self._io.write_bytes(self.path(identity.checkpoint_id), b"")
        self.remove(identity)

    def path(self, checkpoint_id: int) -> str:
        """Path of a checkpoint's Committable."""
        return self._locations.committable(self._owner, checkpoint_id)


def staged_by_all_jobs(io: FileIO, locations: TableLocations) -> Iterator[Committable]:
    """The Committables that are staged for a table, of every job and branch, in no order."""
    return _staged(io, locations.committables_directory)


def _staged(io: FileIO, directory: str) -> Iterator[Committable]:
    for info in io.list_prefix(directory):
        if info.path.endswith(".json") and info.size:  # empty: withdrawn
            yield committable_from_bytes(io.read_bytes(info.path), info.path)
