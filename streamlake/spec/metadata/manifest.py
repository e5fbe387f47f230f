"""Manifests and their entries as values (spec: Manifests, Manifest Lists)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from streamlake.spec.metadata.data_file import DataFile


class ManifestContent(IntEnum):
    """What a manifest tracks: data files or delete files, never both."""

    DATA = 0
    DELETES = 1


class EntryStatus(IntEnum):
    """What the snapshot that wrote the manifest did with the file."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


@dataclass(frozen=True)
class ManifestEntry:
    """One file in a manifest. The ids are None until they are inherited from the manifest list."""

    status: EntryStatus
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    data_file: DataFile

    @property
    def is_live(self) -> bool:
        """Whether the file belongs to the snapshot, so that it is not DELETED."""
        return self.status != EntryStatus.DELETED


@dataclass(frozen=True)
class FieldSummary:
    """Summary of one partition field over a manifest.

    The bounds are single-value bytes of its result type.
    """

    contains_null: bool
    contains_nan: bool | None = None
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


@dataclass(frozen=True)
class ManifestFile:
    """One manifest as the manifest list describes it.

    `sequence_number` and `added_snapshot_id` of a staged delta manifest are None: the
    commit that adds it assigns them.
    """

    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    content: ManifestContent
    sequence_number: int | None
    min_sequence_number: int | None
    added_snapshot_id: int | None
    added_files_count: int | None
    existing_files_count: int | None
    deleted_files_count: int | None
    added_rows_count: int | None
    existing_rows_count: int | None
    deleted_rows_count: int | None
    partitions: tuple[FieldSummary, ...] | None = None
    key_metadata: bytes | None = None
    first_row_id: int | None = None

    @property
    def may_have_live_files(self) -> bool:
        """False only when the counts show that every entry is DELETED."""
        return self.added_files_count != 0 or self.existing_files_count != 0
