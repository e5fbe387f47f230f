"""Finds out from metrics whether rows have nulls in columns, before the columns become required."""

from __future__ import annotations

from collections.abc import Mapping

from streamlake.errors import SchemaMismatchError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.spec.metadata.data_file import DataFile
from streamlake.spec.metadata.manifest import ManifestContent
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.table import Table


def require_no_nulls(table: Table, base: TableMetadata, columns: Mapping[int, str]) -> None:
    """Raise SchemaMismatchError unless every live file of every branch is known to have no null in `columns`.

    `columns` are names by field id. Rows that are deleted count as well.
    """
    heads = {ref.snapshot_id for ref in base.refs.values() if ref.type == "branch"} if columns else set()
    manifests = {
        manifest.manifest_path: manifest
        for head in sorted(heads)
        for manifest in table.manifests(base.snapshot(head))
        if manifest.content == ManifestContent.DATA and manifest.may_have_live_files
    }
    for manifest in manifests.values():
        for entry in read_manifest(table.io, manifest, base.specs_by_id, live_only=True):
            for field_id, name in columns.items():
                if not _has_none(entry.data_file, field_id):
                    raise SchemaMismatchError(
                        f"{base.location}: the column '{name}' cannot become required: "
                        f"{entry.data_file.file_path} has nulls in it, or no metrics that say that it has "
                        "none. Delete or fill the rows without it and compact the table, or leave the column "
                        "optional"
                    )


def _has_none(file: DataFile, field_id: int) -> bool:
    values = (file.value_counts or {}).get(field_id)
    nulls = (file.null_value_counts or {}).get(field_id)
    return not file.record_count or (nulls == 0 and values is not None and values >= file.record_count)
