"""Setting and removing table properties, and upgrading the format version."""

from __future__ import annotations

from streamlake.errors import InvalidOptionError
from streamlake.spec.table_metadata import TableMetadata
from streamlake.table.metadata_changes import with_format_version, with_properties
from streamlake.table.metadata_update import commit_metadata
from streamlake.table.table import Table


class UpdateProperties:
    """Collects property changes; `commit()` makes them one new version without a snapshot."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._updates: dict[str, str] = {}
        self._removals: set[str] = set()
        self._format_version: int | None = None

    def set(self, key: str, value: str) -> UpdateProperties:
        """Set one property. `format-version` upgrades the table, as in Iceberg."""
        if key in self._removals:
            raise InvalidOptionError(f"table property {key} cannot be set and removed in one update")
        if key == "format-version":
            if not str(value).isdigit():
                raise InvalidOptionError(f"format-version {value!r} is not a format version; use 2 or 3")
            return self.upgrade_format_version(int(value))
        self._updates[key] = str(value)
        return self

    def remove(self, key: str) -> UpdateProperties:
        """Remove one property; it may be absent."""
        if key in self._updates:
            raise InvalidOptionError(f"table property {key} cannot be set and removed in one update")
        self._removals.add(key)
        return self

    def upgrade_format_version(self, version: int) -> UpdateProperties:
        """Move the table to a higher format version; readers that do not know it can no longer read it."""
        self._format_version = version
        return self

    def commit(self) -> TableMetadata:
        """Make the change; returns the new metadata (unchanged when there was nothing to do)."""
        return commit_metadata(self._table, self._apply)

    def _apply(self, base: TableMetadata) -> TableMetadata:
        new = with_properties(base, self._updates, self._removals)
        return new if self._format_version is None else with_format_version(new, self._format_version)
