"""AWS Glue as a metastore: the pointer is a parameter of a Glue table, and a swap names what it replaces.

The entry is that of Iceberg's GlueCatalog, columns and all, which are for people who look at Glue. Property
`glue.skip-archive` (default true): whether Glue keeps no copy of the superseded entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from streamlake.catalog.client_errors import translated
from streamlake.catalog.metastores.aws_errors import error_code, refusal
from streamlake.catalog.metastores.pointers import Change, Pointer
from streamlake.catalog.metastores.type_names import hive_type
from streamlake.catalog.metastores.warehouse import (
    ensure_namespace,
    listed_tables,
    new_table_location,
    require_namespace,
    split_name,
)
from streamlake.catalog.storage_settings import storage_settings
from streamlake.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidOptionError,
    StreamlakeError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from streamlake.options import bool_property
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.data_types import NestedField

_NAME = re.compile(r"[a-z0-9_]{1,252}")
_OTHER_PLACES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
_KEPT = ("Owner", "Retention")
_COPIED = (
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "TableType",
    "Parameters",
)
"""What an entry says of the table, and not of its version in Glue."""


class GlueMetastore:
    """The tables of a Glue catalog; `client` is PyIceberg's GlueCatalog. See Metastore."""

    repeats_requests = True

    def __init__(self, client: Any) -> None:
        self.client = client
        self._glue = client.glue
        self._skip_archive = bool_property(client.properties, "glue.skip-archive", True)
        self._any_name = bool_property(client.properties, "glue.skip-name-validation", False)

    @property
    def name(self) -> str:
        """The catalog's name."""
        return str(self.client.name)

    @cached_property
    def storage(self) -> Mapping[str, str]:
        """The settings of the tables' storage."""
        return storage_settings(self.client.properties)

    def is_conditional(self, metadata: TableMetadata) -> bool:
        """Always: Glue compares the version id."""
        del metadata
        return True

    def pointer(self, table: str) -> Pointer:
        """The path and the version id of the Glue table."""
        database, name = split_name(table)
        action = f"loading {table} from catalog {self.name}"
        with translated(action):
            try:
                entry = self._glue.get_table(DatabaseName=database, Name=name)["Table"]
            except Exception as error:
                if error_code(error) != "EntityNotFoundException":
                    raise
                raise TableNotFoundError(
                    f"{action}: there is no such table; check the name, or create it"
                ) from error
        parameters = entry.get("Parameters") or {}
        if parameters.get("table_type", "").lower() != "iceberg" or not parameters.get("metadata_location"):
            raise TableNotFoundError(f"{action}: it is in Glue, but it is not an Iceberg table")
        return Pointer(parameters["metadata_location"], str(entry.get("VersionId") or ""), entry)

    def new_location(self, table: str) -> str:
        """In the database's location, else in the warehouse: `database.db/table`."""
        self._require_name(table)
        return new_table_location(self.client, table, ".db")

    def admit(self, table: str) -> None:
        """Glue takes certain names only."""
        self._require_name(table)
        ensure_namespace(self.client, table)

    def _require_name(self, table: str) -> None:
        for part in split_name(table):
            if not self._any_name and not _NAME.fullmatch(part):
                raise InvalidOptionError(
                    f"creating {table}: Glue takes names of up to 252 lowercase letters, digits and "
                    f"underscores, and {part!r} is none; choose another, or set "
                    "glue.skip-name-validation=true"
                )

    def tables(self, namespace: str) -> list[str]:
        """The Iceberg tables of a database."""
        return listed_tables(self.client, namespace)

    def remove(self, table: str) -> None:
        """Delete the Glue table."""
        self.pointer(table)
        self._delete(table)

    def _delete(self, table: str) -> None:
        database, name = split_name(table)
        try:
            self._glue.delete_table(DatabaseName=database, Name=name)
        except Exception as error:
            if error_code(error) == "EntityNotFoundException":
                return  # an earlier request whose answer was lost
            refused = refusal(error, f"dropping {table} from catalog {self.name}")
            if refused is None:
                raise
            raise refused from error

    def rename(self, table: str, name: str) -> None:
        """Make the new entry, close the old one to commits, delete it.

        Glue cannot rename. A commit that comes between is refused by the version id, or refuses the rename.
        """
        self._require_name(name)
        require_namespace(self.client, name)
        pointer = self.pointer(table)
        entry = {key: value for key, value in pointer.entry.items() if key in _COPIED}
        self._insert(name, {**entry, "Name": split_name(name)[1]}, f"renaming {table} in catalog {self.name}")
        parameters = {**entry["Parameters"], "table_type": "RENAMED", "renamed_to": name}
        database, own = split_name(table)
        try:
            self._glue.update_table(
                DatabaseName=database,
                TableInput={**entry, "Name": own, "Parameters": parameters},
                SkipArchive=self._skip_archive,
                VersionId=pointer.version,
            )
        except Exception as error:
            raise self._not_renamed(table, name, error) from error
        self._delete(table)

    def _not_renamed(self, table: str, name: str, error: Exception) -> StreamlakeError:
        """Go back where the old entry certainly still is the table's; else leave both, and say so."""
        message = f"renaming {table} in catalog {self.name}"
        if error_code(error) == "ConcurrentModificationException":
            self._delete(name)
            return CommitConflictError(f"{message}: another writer committed meanwhile")
        refused = refusal(error, message)
        if refused is not None:
            self._delete(name)
            return refused
        return CommitStateUnknownError(
            f"{message}: {error}; look at both names in Glue, and delete the entry of {name} if {table} is "
            "still an Iceberg table, else that of the old name"
        )

    def insert(self, table: str, change: Change) -> None:
        """Make the Glue table."""
        entry = _entry(split_name(table)[1], change)
        self._insert(table, entry, f"creating {table} in catalog {self.name}")

    def _insert(self, table: str, entry: Mapping[str, Any], action: str) -> None:
        database, _ = split_name(table)
        try:
            self._glue.create_table(DatabaseName=database, TableInput=entry)
        except Exception as error:
            refused = refusal(error, action)
            if refused is None:
                raise
            if error_code(error) == "AlreadyExistsException":
                raise TableAlreadyExistsError(
                    f"{action}: there is a table {table} already; load it, or choose another name"
                ) from error
            raise refused from error

    def swap(self, table: str, change: Change) -> None:
        """Update the Glue table if its version id still is the one that was read."""
        database, name = split_name(table)
        assert change.pointer is not None
        if not change.pointer.version:
            raise CommitConflictError(f"{table}: its version id was not read yet; refresh and apply it again")
        try:
            self._glue.update_table(
                DatabaseName=database,
                TableInput=_entry(name, change),
                SkipArchive=self._skip_archive,
                VersionId=change.pointer.version,
            )
        except Exception as error:
            code, message = error_code(error), f"{table}: catalog {self.name}"
            if code == "ConcurrentModificationException":
                raise CommitConflictError(f"{message}: another writer committed first ({error})") from error
            refused = refusal(error, message)
            if refused is None:
                raise
            if code == "EntityNotFoundException":
                raise TableNotFoundError(f"{message}: the table was dropped") from error
            raise refused from error


def _entry(name: str, change: Change) -> dict[str, Any]:
    """The TableInput for a change: what a user has set in Glue stays."""
    metadata, pointer = change.metadata, change.pointer
    before: Mapping[str, Any] = {} if pointer is None else pointer.entry
    parameters = dict(before.get("Parameters") or {})
    parameters |= {"table_type": "ICEBERG", "metadata_location": change.metadata_location}
    if pointer is not None:
        parameters["previous_metadata_location"] = pointer.metadata_location
    entry = {key: before[key] for key in _KEPT if before.get(key) is not None}
    description = metadata.properties.get("comment", before.get("Description"))
    if description:
        entry["Description"] = description
    storage: dict[str, Any] = {"Location": metadata.location, "Columns": _columns(metadata, before)}
    places = sorted({metadata.properties[key] for key in _OTHER_PLACES if key in metadata.properties})
    if places:
        storage["AdditionalLocations"] = places
    return {
        **entry,
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": parameters,
        "StorageDescriptor": storage,
    }


def _columns(metadata: TableMetadata, before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The columns of the current schema, then those of earlier ones, each name once."""
    storage = before.get("StorageDescriptor") or {}
    comments: dict[str, str] = {}
    for known in storage.get("Columns") or ():
        if known.get("Comment"):
            comments.setdefault(known["Name"], known["Comment"])
    columns: dict[str, dict[str, Any]] = {}
    current = [metadata.schema]
    for schema in current + [schema for schema in metadata.schemas if schema != metadata.schema]:
        for part in schema.fields:
            column = _column(part, is_current=schema is metadata.schema, comment=comments.get(part.name))
            columns.setdefault(part.name, column)
    return list(columns.values())


def _column(part: NestedField, *, is_current: bool, comment: str | None) -> dict[str, Any]:
    column: dict[str, Any] = {
        "Name": part.name,
        "Type": hive_type(part.type),
        "Parameters": {
            "iceberg.field.id": str(part.field_id),
            "iceberg.field.optional": str(not part.required).lower(),
            "iceberg.field.current": str(is_current).lower(),
        },
    }
    if part.doc or comment:
        column["Comment"] = part.doc or comment
    return column
