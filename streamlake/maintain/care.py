"""What a table needs care for: figures from its metadata alone, thresholds, and the command that helps.

`streamlake doctor` and `streamlake maintain` show it. Only the metadata and the head's manifest list are
read, whatever the size of the table. Invariant: nothing here is an error, and readers get right rows all the
same.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from streamlake.errors import DataInvalidError, StorageError
from streamlake.options import int_property
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.table.options import ManifestOptions, MetadataOptions
from streamlake.table.table import Table
from streamlake.wording import counted

MANY_SNAPSHOTS = 2_000
LARGE_METADATA = 10 * 1024 * 1024
MANY_FILES = 500
"""Fewer data or delete files than this are no reason for anything."""
SMALL_SHARE = 8
"""Data files are small where they have less than one in so many bytes of the target size on average."""
DELETE_SHARE = 2
"""Delete files are many where there is more than one for so many data files."""
_TARGET_FILE = 512 * 1024 * 1024
_MB = 1024 * 1024


@dataclass(frozen=True)
class Figures:
    """How large a table's metadata is, and what the head of main consists of.

    None: its summary does not say. `metadata_bytes` is the size of one metadata file, `metadata_files` counts
    the older ones in the log.
    """

    snapshots: int
    metadata_bytes: int | None
    metadata_files: int
    manifests: int
    manifest_bytes: int
    data_files: int | None
    delete_files: int | None
    bytes: int | None


@dataclass(frozen=True)
class CareNeeded:
    """One thing that a table needs: a kind such as `many-snapshots`, what there is of it, and what helps."""

    kind: str
    what: str
    command: str


def figures(table: Table) -> Figures:
    """The figures of the version that the table shows."""
    metadata = table.metadata
    head = metadata.head(MAIN_BRANCH)
    summary: Mapping[str, str] = {} if head is None else head.summary
    manifests = table.manifests(head)
    path = metadata_path(table)
    return Figures(
        len(metadata.snapshots),
        None if path is None else table.io.size(path),
        len(metadata.metadata_log),
        len(manifests),
        sum(manifest.manifest_length for manifest in manifests),
        _number(summary, "total-data-files"),
        _number(summary, "total-delete-files"),
        _number(summary, "total-files-size"),
    )


def metadata_path(table: Table) -> str | None:
    """The metadata file of the version that the table shows; None where the catalog does not say."""
    path = getattr(table.operations, "metadata_path", None)
    return None if path is None else str(path)


def care_needed(table: Table, found: Figures | None = None) -> tuple[CareNeeded, ...]:
    """What the table needs care for, the costliest for readers first."""
    found = figures(table) if found is None else found
    metadata, name = table.metadata, shlex.quote(table.name)
    needed = _files(metadata, found, table.name)
    manifests = ManifestOptions.parse(metadata.properties)
    least = 2 * max(1, found.manifest_bytes // manifests.target_size_bytes)
    if found.manifests > least + manifests.min_count_to_merge:
        size_text = f"{found.manifest_bytes / _MB:,.1f} MB"
        what = f"{counted(found.manifests, 'manifest')} of {size_text}: planning is slow"
        needed.append(CareNeeded("many-manifests", what, f"`streamlake maintain {name} --only manifests`"))
    size = found.metadata_bytes or 0
    if found.snapshots > MANY_SNAPSHOTS or size > LARGE_METADATA:
        what = (
            f"{counted(found.snapshots, 'snapshot')} in a metadata file of {size / _MB:,.1f} MB, which every "
            "commit writes anew"
        )
        fix = f"`streamlake maintain {name} --only expire --older-than 5d`"
        needed.append(CareNeeded("many-snapshots", what, fix))
    options = MetadataOptions.parse(metadata.properties)
    if not options.delete_after_commit and found.metadata_files >= options.previous_versions_max:
        needed.append(
            CareNeeded(
                "metadata-kept",
                f"every metadata file is kept, about {size / _MB:,.2f} MB for each commit",
                "set the table property write.metadata.delete-after-commit.enabled=true, then `streamlake "
                f"maintain {name} --only metadata`",
            )
        )
    return tuple(needed)


def kinds_of_care(table: Table) -> tuple[str, ...]:
    """The kinds of what the table needs care for; none where its files cannot be read, which is no care."""
    try:
        return tuple(each.kind for each in care_needed(table))
    except (StorageError, DataInvalidError):
        return ()


def _files(metadata: TableMetadata, found: Figures, name: str) -> list[CareNeeded]:
    needed = []
    count, size, deletes = found.data_files or 0, found.bytes or 0, found.delete_files or 0
    target = int_property(metadata.properties, "write.target-file-size-bytes", _TARGET_FILE, minimum=1)
    if count >= MANY_FILES and size * SMALL_SHARE < target * count:
        what = f"{counted(count, 'data file')} of {size / count / _MB:,.2f} MB on average"
        needed.append(CareNeeded("small-files", what, _compact(name)))
    if deletes >= MANY_FILES and deletes * DELETE_SHARE > count:
        what = f"{counted(deletes, 'delete file')} beside {counted(count, 'data file')}"
        needed.append(CareNeeded("many-deletes", what, _compact(name)))
    return needed


def _compact(name: str) -> str:
    return f"`streamlake maintain {shlex.quote(name)} --only compact`"


def _number(summary: Mapping[str, str], name: str) -> int | None:
    try:
        return int(summary[name])
    except (KeyError, ValueError):
        return None
