"""The protocol of a metastore: where the current metadata of a table is, and one conditional change of it.

A metastore is a service that knows nothing of Iceberg but a pointer per table. All of them are used by
`MetastoreTableOperations` in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from streamlake.spec.metadata.table_metadata import TableMetadata


@dataclass(frozen=True)
class Pointer:
    """What a metastore says about a table: the path of its current metadata file.

    `version` is what a swap compares besides the path (a version id), "" where the path is all there is.
    `entry` is the metastore's own record of the table, which a swap carries over.
    """

    metadata_location: str
    version: str = ""
    entry: Any = None

    def is_same(self, other: Pointer) -> bool:
        """Whether a swap that is conditional on this pointer would be applied while `other` is current."""
        return (self.metadata_location, self.version) == (other.metadata_location, other.version)


@dataclass(frozen=True)
class Change:
    """One change of a pointer: the file `metadata_location` with `metadata` is to follow `base`.

    `base` and `pointer`, which were read together, are None for a new table.
    """

    metadata_location: str
    metadata: TableMetadata
    base: TableMetadata | None = None
    pointer: Pointer | None = None


class Metastore(Protocol):
    """One metastore, for all its tables and all threads of a process. Table names are dotted.

    What changes something raises StreamlakeErrors for what is certainly not done. Whatever else they raise
    means that it may be done: the caller reads the table.
    """

    @property
    def name(self) -> str:
        """The catalog's name, for messages."""
        ...

    @property
    def client(self) -> Any:
        """PyIceberg's client, which knows the namespaces."""
        ...

    @property
    def storage(self) -> Mapping[str, str]:
        """The settings of the storage of its tables, without anything that opens the metastore itself."""
        ...

    @property
    def repeats_requests(self) -> bool:
        """Whether a refused swap may be the second answer to a request that was done the first time."""
        ...

    def is_conditional(self, metadata: TableMetadata) -> bool:
        """Whether a swap that arrives late is refused once the pointer has moved."""
        ...

    def pointer(self, table: str) -> Pointer:
        """The current pointer. Raises TableNotFoundError, StorageError."""
        ...

    def new_location(self, table: str) -> str:
        """Where a new table of this name goes; its namespace is created when it is missing."""
        ...

    def insert(self, table: str, change: Change) -> None:
        """Make the entry of a new table. Raises TableAlreadyExistsError."""
        ...

    def swap(self, table: str, change: Change) -> None:
        """Set the pointer if it still is `change.pointer`. Raises CommitConflictError if it is not."""
        ...

    def admit(self, table: str) -> None:
        """Check a new name, and create its namespace when it is missing. Raises InvalidOptionError."""
        ...

    def tables(self, namespace: str) -> list[str]:
        """The names of the tables in a namespace. Called within `translated`."""
        ...

    def remove(self, table: str) -> None:
        """Remove the table's entry; its files stay. Raises TableNotFoundError. See `insert` for errors."""
        ...

    def rename(self, table: str, name: str) -> None:
        """Give the table's entry another name, with the pointer that it has at that moment.

        Raises TableNotFoundError for a table or namespace that is not there, TableAlreadyExistsError,
        CommitConflictError when a commit came between.
        """
        ...
