"""The catalog of the tables of one metastore."""

from __future__ import annotations

from streamlake.catalog.metastores.metastore_operations import MetastoreTableOperations
from streamlake.catalog.metastores.pointers import Metastore
from streamlake.catalog.new_tables import TableDefinition, initial_metadata
from streamlake.table.table import Table


class MetastoreCatalog:
    """Opens and creates tables of a metastore. Made once per process and catalog."""

    def __init__(self, metastore: Metastore) -> None:
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
