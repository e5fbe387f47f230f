"""What a catalog gives a table: its current metadata, its files, and the one atomic step.

Everything in `table/` is written against this protocol; `catalog/` implements it. Invariant: a metadata value
that `current`, `refresh` or `commit` returned is what some version of the table really is, never a draft.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from streamlake.spec.table_metadata import TableMetadata
from streamlake.storage.file_io import FileIO


class TableOperations(Protocol):
    """One table as its catalog knows it. An instance belongs to one thread at a time."""

    @property
    def name(self) -> str:
        """What messages call the table."""
        ...

    @property
    def location(self) -> str:
        """The table's base location."""
        ...

    @property
    def io(self) -> FileIO:
        """Where the table's metadata and data files are read and written."""
        ...

    def current(self) -> TableMetadata:
        """The metadata as last seen; reads the catalog only when nothing was read yet."""
        ...

    def refresh(self) -> TableMetadata:
        """The newest metadata. Called before every commit attempt; cheap when nothing changed."""
        ...

    def commit(self, base: TableMetadata, new: TableMetadata) -> TableMetadata:
        """Swap `base` for `new`, if `base` is still current; returns what is current now.

        Called once per attempt, with the `base` that `refresh` returned. Raises CommitConflictError (certainly
        not committed, somebody was first), StorageError (certainly not committed) or CommitStateUnknownError
        (perhaps committed). Keeps the metadata log; everything else in `new` is the caller's.
        """
        ...

    def commit_turn(self) -> AbstractContextManager[None]:
        """Held around one attempt (refresh, apply, commit) so that well-behaved neighbours queue instead of
        colliding. A courtesy only: it may do nothing, and correctness never rests on it."""
        ...
