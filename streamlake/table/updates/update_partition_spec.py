"""Partition spec updates: adds, removes and renames partition fields, in one new spec (spec: Partition
Evolution).

No data file changes: files keep the spec that they were written by, and rows written later have the new one.
Invariants: a field that the table has had before gets its old id; an id is never given to another field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from streamlake.errors import InvalidOptionError
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import PartitionField, PartitionSpec, parse_transform_call
from streamlake.spec.partitioning.transforms import Identity, Transform, Void
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import require_writable, with_spec
from streamlake.table.updates.metadata_update import commit_metadata

_TIMES = ("year", "month", "day", "hour")


class UpdatePartitionSpec:
    """Collects changes of a table's partitioning; `commit()` makes them one new spec without a snapshot.

    Each change sees the result of those before it. `commit()` raises InvalidOptionError for columns and
    fields that are not there, and for names that are taken.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._steps: list[Callable[[_Fields], None]] = []

    def add_field(self, term: str, name: str | None = None) -> UpdatePartitionSpec:
        """Add a field such as "day(ts)", "bucket(16, id)" or "category"; rows written later are parted by it.

        `name` None: as Iceberg names it (`ts_day`, `id_bucket_16`, `category`).
        """
        self._steps.append(lambda fields: fields.add(term, name))
        return self

    def remove_field(self, field: str) -> UpdatePartitionSpec:
        """Remove a field, given by its name or as it was added ("day(ts)")."""
        self._steps.append(lambda fields: fields.remove(field))
        return self

    def rename_field(self, field: str, name: str) -> UpdatePartitionSpec:
        """Give a field another name."""
        self._steps.append(lambda fields: fields.rename(field, name))
        return self

    def apply(self) -> PartitionSpec:
        """The spec that a commit would make from the metadata as last read."""
        return self._changed(self._table.metadata).spec

    def commit(self) -> TableMetadata:
        """Commit the change on the newest metadata; returns it (unchanged when there was nothing to do)."""
        self._table.refresh()
        base = self._table.metadata
        require_writable(base, self._table.name)
        wanted = self._changed(base).spec
        if wanted == base.spec:
            return base

        def change(now: TableMetadata) -> TableMetadata:
            if now.default_spec_id != base.default_spec_id and _shape(now.spec) == _shape(wanted):
                return now  # an earlier attempt of this same update, whose response was lost
            require_writable(now, self._table.name)
            return self._changed(now)

        return commit_metadata(self._table, change)

    def _changed(self, base: TableMetadata) -> TableMetadata:
        fields = _Fields(base)
        for step in self._steps:
            step(fields)
        return with_spec(base, tuple(fields.parts))


class _Fields:
    """The fields of a spec while it is being changed."""

    def __init__(self, base: TableMetadata) -> None:
        self._base = base
        self.parts = list(base.spec.fields)
        self._added: list[PartitionField] = []
        self._last_id = max(base.last_partition_id, *(spec.highest_field_id for spec in base.specs))

    def add(self, term: str, name: str | None) -> None:
        source, transform, _ = parse_transform_call(term, self._base.schema, "add_field")
        if isinstance(transform, Void):
            raise self._wrong(f"'{term}' divides no rows; remove the field instead")
        same = self._of(source.field_id, transform)
        if same is not None:
            raise self._wrong(f"there is a partition field '{same.name}' for '{term}' already")
        kind = str(transform)
        if kind in _TIMES:
            for part in self._added:
                if part.source_id == source.field_id and str(part.transform) in _TIMES:
                    raise self._wrong(
                        f"'{term}' and '{part.name}' part rows by one time twice; add one of them"
                    )
        if name is not None and not name.strip():
            raise self._wrong("a partition field needs a name")
        column = self._base.schema.name_of(source.field_id) or term
        known = self._known(source.field_id, transform, name)
        chosen = name or (known.name if known is not None else _default_name(column, kind))
        self._require_free(chosen, source.field_id if isinstance(transform, Identity) else None)
        if known is None:
            self._last_id += 1
            known = PartitionField(source.field_id, self._last_id, chosen, transform)
        part = replace(known, name=chosen)
        self._added.append(part)
        self.parts.append(part)

    def remove(self, field: str) -> None:
        part = self._need(field)
        self.parts.remove(part)
        self._added = [each for each in self._added if each is not part]

    def rename(self, field: str, name: str) -> None:
        part = self._need(field)
        if part.name == name:
            return
        if not name.strip():
            raise self._wrong("a partition field needs a name")
        self._require_free(name, part.source_id if isinstance(part.transform, Identity) else None)
        self.parts[self.parts.index(part)] = replace(part, name=name)

    def _known(self, source_id: int, transform: Transform, name: str | None) -> PartitionField | None:
        """The field of an earlier spec that this one is again; ids tie the values in files to fields."""
        for spec in self._base.specs:
            for part in spec.fields:
                if (part.source_id, part.transform) == (source_id, transform) and name in (None, part.name):
                    return part
        return None

    def _of(self, source_id: int, transform: Transform) -> PartitionField | None:
        wanted = (source_id, transform)
        return next((part for part in self.parts if (part.source_id, part.transform) == wanted), None)

    def _need(self, field: str) -> PartitionField:
        found = next((part for part in self.parts if part.name == field), None)
        if found is None and "(" in field:
            source, transform, _ = parse_transform_call(field, self._base.schema, "partition field")
            found = self._of(source.field_id, transform)
        if found is None:
            names = ", ".join(f"'{part.name}'" for part in self.parts) or "none"
            raise self._wrong(f"there is no partition field '{field}'; there are {names}")
        return found

    def _require_free(self, name: str, own_source: int | None) -> None:
        if any(part.name == name for part in self.parts):
            raise self._wrong(f"there is a partition field '{name}' already; choose another name")
        column = self._base.schema.find(name)
        if column is not None and column.field_id != own_source:
            raise self._wrong(f"'{name}' is the name of a column; choose another one for the partition field")

    def _wrong(self, problem: str) -> InvalidOptionError:
        return InvalidOptionError(f"{self._base.location}: {problem}")


def _shape(spec: PartitionSpec) -> list[tuple[int, str, Transform]]:
    return [(part.source_id, part.name, part.transform) for part in spec.fields]


def _default_name(column: str, transform: str) -> str:
    """The name that Iceberg gives a field: its transform, with its width behind it."""
    kind, _, width = transform.rstrip("]").partition("[")
    if kind == "identity":
        return column
    kind = "trunc" if kind == "truncate" else kind
    return f"{column}_{kind}_{width}" if width else f"{column}_{kind}"
