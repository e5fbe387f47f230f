"""A data or delete file as a manifest describes it (spec: Data File Fields)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

_FILE_PATH_ID = 2147483546  # Column of position delete files (spec: Reserved Field IDs).


class FileContent(IntEnum):
    """The type of content of a file (field 134)."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


@dataclass(frozen=True)
class DataFile:
    """The fields of `data_file`.

    `partition` holds values in the order of the partition spec's fields. The maps are keyed by field id.
    `lower_bounds` and `upper_bounds` hold single-value bytes.
    """

    content: FileContent
    file_path: str
    file_format: str
    spec_id: int
    partition: tuple[Any, ...]
    record_count: int
    file_size_in_bytes: int
    column_sizes: dict[int, int] | None = None
    value_counts: dict[int, int] | None = None
    null_value_counts: dict[int, int] | None = None
    nan_value_counts: dict[int, int] | None = None
    lower_bounds: dict[int, bytes] | None = None
    upper_bounds: dict[int, bytes] | None = None
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None

    @property
    def is_data(self) -> bool:
        """Whether it is a data file, not a delete file."""
        return self.content == FileContent.DATA

    @property
    def identity(self) -> tuple[str, int | None]:
        """What identifies the file: its path, and for a blob in a Puffin file its offset."""
        return self.file_path, self.content_offset

    @property
    def deletes_from(self) -> str | None:
        """The one data file that position deletes or a deletion vector are for.

        None when there may be several. Writers that do not set the reference may give equal bounds of the
        paths instead, which are then whole paths.
        """
        if self.content != FileContent.POSITION_DELETES or self.referenced_data_file is not None:
            return self.referenced_data_file
        lower = (self.lower_bounds or {}).get(_FILE_PATH_ID)
        upper = (self.upper_bounds or {}).get(_FILE_PATH_ID)
        return lower.decode("utf-8", "replace") if lower is not None and lower == upper else None

    @property
    def is_deletion_vector(self) -> bool:
        """Whether it is a deletion vector."""
        return self.content == FileContent.POSITION_DELETES and self.file_format == "puffin"

    def without_statistics(self) -> DataFile:
        """The file without its metrics, for whoever keeps many files in memory."""
        return replace(
            self,
            column_sizes=None,
            value_counts=None,
            null_value_counts=None,
            nan_value_counts=None,
            lower_bounds=None,
            upper_bounds=None,
            split_offsets=None,
        )
