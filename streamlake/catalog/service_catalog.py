"""Tables of catalog services that swap by themselves: REST catalogs, and others that PyIceberg knows.

The client says where the current metadata file is and applies our changes when the base is still current.
Metadata is read, and files are written, by streamlake itself. Invariant: whatever a client raises while it
commits, unless it is known to mean "not committed", becomes CommitStateUnknownError.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from streamlake import clock
from streamlake.catalog.client_errors import CLIENT_LIMIT, CONFLICTS, NOT_THERE, REFUSALS, translated
from streamlake.catalog.client_namespaces import ClientNamespaces
from streamlake.catalog.metadata_diff import requirements, updates
from streamlake.catalog.new_tables import TableDefinition, initial_metadata
from streamlake.catalog.storage_settings import renewal_ms, served_settings
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataInvalidError,
    FeatureUnsupportedError,
    InvalidOptionError,
    StorageError,
    StreamlakeError,
    TableNotFoundError,
)
from streamlake.formats.manifests.metadata_json import read_metadata
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import spec_to_json
from streamlake.spec.partitioning.sort_order import sort_order_to_json
from streamlake.spec.types.type_json import schema_to_json
from streamlake.storage.durability import wants_fsync
from streamlake.storage.file_io import FileIO, file_io_for
from streamlake.table.table import Table


class ServiceCatalog(ClientNamespaces):
    """A catalog of the tables of a catalog service; `client` is PyIceberg's."""

    def __init__(self, name: str, client: Any, given: Mapping[str, Any]) -> None:
        super().__init__(client)
        self.name = name
        self.client = client
        self.given = given
        """The properties that the user has given, without those that the server has added."""
        self.has_server = any(kind.__name__ == "RestCatalog" for kind in type(client).__mro__)
        """Whether a server checks the requirements, and not the client."""

    def load_table(self, name: str) -> Table:
        """The table of this name. Raises TableNotFoundError, StorageError."""
        operations = ServiceTableOperations(self, name)
        operations.refresh()
        return Table(name, operations)

    def create_table(self, name: str, definition: TableDefinition) -> Table:
        """Create a table in the service, and its namespace when it is missing.

        Raises TableAlreadyExistsError.
        """
        draft = initial_metadata(definition, "")
        properties = {**draft.properties, "format-version": str(draft.format_version)}
        with translated(f"creating {name} in catalog {self.name}"):
            namespace = name.rpartition(".")[0]
            if namespace:
                self.client.create_namespace_if_not_exists(namespace)
            self.client.create_table(
                name,
                import_module("pyiceberg.schema").Schema.model_validate(schema_to_json(draft.schema)),
                partition_spec=import_module("pyiceberg.partitioning").PartitionSpec.model_validate(
                    spec_to_json(draft.spec)
                ),
                sort_order=import_module("pyiceberg.table.sorting").SortOrder.model_validate(
                    sort_order_to_json(draft.sort_order)
                ),
                properties=properties,
            )
        return self.load_table(name)

    def register_table(self, name: str, metadata_file: str) -> Table:
        """Make the service know an existing metadata file under a name.

        Its namespace is created when it is missing. Raises TableAlreadyExistsError, StorageError.
        """
        with translated(f"registering {name} in catalog {self.name}"):
            namespace = name.rpartition(".")[0]
            if namespace:
                self.client.create_namespace_if_not_exists(namespace)
            self.client.register_table(name, metadata_file)
        return self.load_table(name)

    def list_tables(self, namespace: str) -> list[str]:
        """The names of the tables in a namespace, sorted. Raises TableNotFoundError."""
        with translated(f"listing tables of {namespace} in catalog {self.name}"):
            return sorted(".".join(name) for name in self.client.list_tables(namespace))

    def metadata_location(self, name: str) -> str:
        """The table's metadata file. Raises TableNotFoundError."""
        with translated(f"loading {name} from catalog {self.name}"):
            return str(self.client.load_table(name).metadata_location)

    def drop_table(self, name: str) -> None:
        """Make the service forget the table; its files stay. Raises TableNotFoundError."""
        with translated(f"dropping {name} from catalog {self.name}"):
            self.client.drop_table(name)

    def purge_table(self, name: str) -> None:
        """Make the service forget the table and delete its files, now or later. Raises TableNotFoundError."""
        with translated(f"dropping {name} from catalog {self.name}"):
            self.client.purge_table(name)

    def rename_table(self, name: str, new_name: str) -> None:
        """Give a table another name. Raises TableNotFoundError, TableAlreadyExistsError."""
        if name == new_name:
            raise InvalidOptionError(f"{name} has this name already; choose another one")
        with translated(f"renaming {name} to {new_name} in catalog {self.name}"):
            self.client.rename_table(name, new_name)


class ServiceTableOperations:
    """One table of a catalog service. See TableOperations."""

    def __init__(self, catalog: ServiceCatalog, name: str) -> None:
        self._catalog = catalog
        self._name = name
        self._handle: Any = None
        self._io: FileIO | None = None
        self._settings: dict[str, str] = {}
        self._renew_ms: int | None = None
        self._expires_ms = 0
        self._path = ""
        self._metadata: TableMetadata | None = None

    @property
    def name(self) -> str:
        """The name of the table in the catalog."""
        return self._name

    @property
    def location(self) -> str:
        """The table's base location."""
        return self.current().location

    @property
    def io(self) -> FileIO:
        """The storage of the table's metadata and data files; credentials that expire soon are renewed."""
        self.current()
        if self._renew_ms is not None and clock.now_ms() >= self._renew_ms:
            try:
                self._use_storage(self._load())
            except StorageError:
                # The service is away: what is there serves as long as it is valid.
                if clock.now_ms() >= self._expires_ms:
                    raise
        assert self._io is not None
        return self._io

    @property
    def metadata_path(self) -> str:
        """The metadata file of the version that `current` returns."""
        self.current()
        return self._path

    def current(self) -> TableMetadata:
        """The metadata as last seen."""
        return self.refresh() if self._metadata is None else self._metadata

    def refresh(self) -> TableMetadata:
        """Ask the service for the current metadata file; the file is read only when it has changed."""
        handle = self._load()
        self._use_storage(handle)
        self._handle = handle
        return self._adopt(handle.metadata_location)

    def _load(self) -> Any:
        with translated(f"loading {self._name} from catalog {self._catalog.name}"):
            return self._catalog.client.load_table(self._name)

    def _use_storage(self, handle: Any) -> None:
        """Take the settings, and the credentials, that came with the table."""
        catalog = self._catalog
        sent = {**catalog.client.properties, **handle.io.properties}
        settings, expires_ms = served_settings(sent, catalog.given, catalog.name)
        self._renew_ms, self._expires_ms = renewal_ms(expires_ms), expires_ms or 0
        if self._io is None or settings != self._settings:
            self._settings = settings
            io = file_io_for(handle.metadata_location, settings)
            known = self._metadata
            self._io = io if known is None else io.with_fsync(wants_fsync(known.properties))

    def _adopt(self, path: str) -> TableMetadata:
        if self._metadata is None or path != self._path:
            assert self._io is not None
            metadata = read_metadata(self._io, path)
            if self._metadata is not None and self._metadata.table_uuid not in ("", metadata.table_uuid):
                raise DataInvalidError(
                    f"{self._name} is another table now (uuid {metadata.table_uuid}, was "
                    f"{self._metadata.table_uuid}): it was dropped and created again; load it again"
                )
            self._io = self._io.with_fsync(wants_fsync(metadata.properties))
            self._metadata, self._path = metadata, path
        return self._metadata

    def commit(self, base: TableMetadata, new: TableMetadata) -> TableMetadata:
        """Send the changes, on the condition that the base is current. See TableOperations.commit."""
        if base is not self._metadata:
            raise CommitConflictError(
                f"{self._name}: the change was made on an older version; refresh and apply it again"
            )
        if new is base:
            return base
        module = import_module("pyiceberg.table.update")
        adapter = import_module("pydantic").TypeAdapter
        changes = tuple(adapter(module.TableUpdate).validate_python(update) for update in updates(base, new))
        pinned = tuple(
            adapter(module.TableRequirement).validate_python(need)
            for need in requirements(base, new, by_server=self._catalog.has_server)
        )
        if not base.snapshots and not self._catalog.has_server:
            self._refuse_stale()
        try:
            answer = self._catalog.client.commit_table(self._handle, pinned, changes)
        except Exception as error:
            raise self._commit_error(error) from error
        try:
            committed = self._adopt(answer.metadata_location)
            # Some clients write the file themselves, without syncing it.
            self.io.sync(self._path)
            return committed
        except StreamlakeError as error:
            raise CommitStateUnknownError(
                f"{self._name}: catalog {self._catalog.name} took the commit, but the table cannot be read: "
                f"{error}"
            ) from error

    def _refuse_stale(self) -> None:
        """Check the base again: no requirement prevents two first commits from creating one branch."""
        if self._load().metadata_location != self._path:
            raise CommitConflictError(f"{self._name}: another writer committed first")

    def _commit_error(self, error: Exception) -> StreamlakeError:
        kind, message = type(error).__name__, f"{self._name}: catalog {self._catalog.name}: {error}"
        stale = (isinstance(error, ValueError) or kind == "BadRequestError") and any(
            part in str(error) for part in ("sequence number", "row id", "row-id")
        )
        if kind in CONFLICTS or stale:
            return CommitConflictError(message)
        if kind in NOT_THERE:
            return TableNotFoundError(message)
        if isinstance(error, NotImplementedError) or "Unsupported table format version" in str(error):
            return FeatureUnsupportedError(f"{message}; {CLIENT_LIMIT}")
        if kind in REFUSALS:
            return StorageError(f"{message} (the catalog refused; check its credentials and permissions)")
        return CommitStateUnknownError(f"{message} ({kind})")

    def commit_turn(self) -> AbstractContextManager[None]:
        """No lock: the service alone decides between commits."""
        return nullcontext()
