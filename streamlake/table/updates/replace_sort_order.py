"""Replaces the sort order of a table (spec: Sorting). Files that are there stay as they are sorted."""

from __future__ import annotations

from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.sort_order import SortOrder, parse_sort_by
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import require_writable, with_sort_order
from streamlake.table.updates.metadata_update import commit_metadata


class ReplaceSortOrder:
    """Collects the fields of a new sort order, the most significant first; `commit()` makes it the table's.

    Without a field the table becomes unsorted.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._terms: list[str] = []

    def by(self, *terms: str) -> ReplaceSortOrder:
        """Add fields such as "ts desc nulls last" or "bucket(4, id)"."""
        self._terms.extend(terms)
        return self

    def apply(self) -> SortOrder:
        """The order that a commit would make. Raises InvalidOptionError for a column that is not there."""
        return self._changed(self._table.metadata).sort_order

    def commit(self) -> TableMetadata:
        """Commit the change on the newest metadata; returns it (unchanged when there was nothing to do)."""
        self._table.refresh()
        return commit_metadata(self._table, self._checked)

    def _checked(self, base: TableMetadata) -> TableMetadata:
        require_writable(base, self._table.name)
        return self._changed(base)

    def _changed(self, base: TableMetadata) -> TableMetadata:
        return with_sort_order(base, parse_sort_by(self._terms, base.schema).fields)
