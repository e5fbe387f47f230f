"""The catalog of the tables of one metastore."""

from __future__ import annotations

from collections.abc import Callable

from streamlake.catalog.client_errors import translated
from streamlake.catalog.client_namespaces import ClientNamespaces
from streamlake.catalog.metastores.metastore_operations import MetastoreTableOperations
from streamlake.catalog.metastores.pointers import Metastore
from streamlake.catalog.new_tables import TableDefinition, initial_metadata
from streamlake.errors import CommitStateUnknownError, InvalidOptionError, StreamlakeError, TableNotFoundError
from streamlake.table.options import RetryOptions
from streamlake.table.table import Table
from streamlake.table.updates.retries import retry_on_conflict


class MetastoreCatalog(ClientNamespaces):
    """The tables and namespaces of a metastore. Made once per process and catalog."""

    def __init__(self, metastore: Metastore) -> None:
        super().__init__(metastore.client)
        self.metastore = metastore

    def load_table(self, name: str) -> Table:
        """The table of this name. Raises TableNotFoundError, StorageError."""
        operations = MetastoreTableOperations(self.metastore, name)
        operations.refresh()
        return Table(name, operations)

    def create_table(self, name: str, definition: TableDefinition) -> Table:
        """Create a table, and its namespace when it is missing. Raises TableAlreadyExistsError."""
        initial_metadata(definition, "")  # what cannot be created leaves no namespace behind
        location = self.metastore.new_location(name)
        operations = MetastoreTableOperations(self.metastore, name)
        operations.create(initial_metadata(definition, location))
        return Table(name, operations)

    def register_table(self, name: str, metadata_file: str) -> Table:
        """Make an entry for an existing metadata file. Raises TableAlreadyExistsError, MissingFileError."""
        operations = MetastoreTableOperations(self.metastore, name)
        operations.register(metadata_file)
        return Table(name, operations)

    def list_tables(self, namespace: str) -> list[str]:
        """The names of the tables in a namespace, sorted. Raises TableNotFoundError."""
        with translated(f"listing tables of {namespace} in catalog {self.metastore.name}"):
            return sorted(self.metastore.tables(namespace))

    def metadata_location(self, name: str) -> str:
        """The table's metadata file, which is not read. Raises TableNotFoundError."""
        return self.metastore.pointer(name).metadata_location

    def drop_table(self, name: str) -> None:
        """Remove the table's entry; its files stay. Raises TableNotFoundError, CommitStateUnknownError."""
        self._certainly(lambda: self.metastore.remove(name), lambda: not self._has(name), f"dropping {name}")

    def rename_table(self, name: str, new_name: str) -> None:
        """Give a table another name, in any namespace that is there; its files stay where they are.

        Raises TableNotFoundError, TableAlreadyExistsError, CommitStateUnknownError.
        """
        if name == new_name:
            raise InvalidOptionError(f"{name} has this name already; choose another one")

        def renamed() -> bool:
            return self._has(new_name) and not self._has(name)

        def rename() -> None:
            self._certainly(
                lambda: self.metastore.rename(name, new_name), renamed, f"renaming {name} to {new_name}"
            )

        retry_on_conflict(RetryOptions.for_commit({}), rename)

    def _certainly(self, change: Callable[[], None], is_done: Callable[[], bool], action: str) -> None:
        """Do a change; where its answer is lost, look whether it is done."""
        try:
            change()
        except StreamlakeError:
            raise
        except Exception as error:
            if not is_done():
                raise CommitStateUnknownError(
                    f"{action}: catalog {self.metastore.name} did not say whether it is done ({error}); look "
                    "for the table before trying again"
                ) from error

    def _has(self, name: str) -> bool:
        try:
            self.metastore.pointer(name)
        except TableNotFoundError:
            return False
        return True
