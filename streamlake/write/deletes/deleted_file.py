"""A data file that rows are deleted from, as the writers of position deletes and deletion vectors need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DeletedFile:
    """A data file with rows to delete.

    Deletes are written for the partition spec and the partition of their data
    file, whatever the table's are now.
    """

    file_path: str
    spec_id: int
    partition: tuple[Any, ...]
