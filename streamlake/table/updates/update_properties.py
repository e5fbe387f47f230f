"""Sets and removes table properties, and upgrades the format version."""

from __future__ import annotations

from streamlake.errors import InvalidOptionError
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import with_format_version, with_properties
from streamlake.table.updates.metadata_update import commit_metadata


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
        """Remove one property. It need not be set."""
        if key in self._updates:
            raise InvalidOptionError(f"table property {key} cannot be set and removed in one update")
        self._removals.add(key)
        return self

    def upgrade_format_version(self, version: int) -> UpdateProperties:
        """Upgrade the table to a higher format version.

        Readers that do not support it can no longer read the table.
        """
        self._format_version = version
        return self

    def commit(self) -> TableMetadata:
        """Commit the change; returns the new metadata (unchanged when there was nothing to do)."""
        return commit_metadata(self._table, self._apply)

    def _apply(self, base: TableMetadata) -> TableMetadata:
        new = with_properties(base, self._updates, self._removals)
        return new if self._format_version is None else with_format_version(new, self._format_version)
