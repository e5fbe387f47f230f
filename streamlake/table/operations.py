"""The protocol between a table and its catalog: the current metadata, the files, and one atomic commit.

Everything in `table/` uses this protocol; `catalog/` implements it. Invariant: a metadata value that
`current`, `refresh` or `commit` returned is a version that the table really has or had, never a draft.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.storage.file_io import FileIO


class TableOperations(Protocol):
    """One table as its catalog knows it. An instance belongs to one thread at a time."""

    @property
    def name(self) -> str:
        """The name of the table in messages."""
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
        """The metadata as last read. Reads the catalog only when nothing was read yet."""
        ...

    def refresh(self) -> TableMetadata:
        """The newest metadata. Called before every commit attempt; cheap when nothing changed."""
        ...

    def commit(self, base: TableMetadata, new: TableMetadata) -> TableMetadata:
        """Swap `base` for `new`, if `base` is still current. Returns the metadata that is current now.

        Called once per attempt, with the `base` that `refresh` returned. Raises CommitConflictError
        (certainly not committed, another writer was first), StorageError (certainly not committed) or
        CommitStateUnknownError (perhaps committed). The implementation maintains the metadata log; everything
        else in `new` is the caller's.
        """
        ...

    def commit_turn(self) -> AbstractContextManager[None]:
        """A lock around one attempt (refresh, apply, commit): writers that cooperate queue, not collide.

        It may do nothing; correctness never depends on it.
        """
        ...
