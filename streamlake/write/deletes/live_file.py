"""A live data file as upserts see it: its partition, and what is already deleted from it."""

from __future__ import annotations

from dataclasses import dataclass

from streamlake.spec.metadata.data_file import DataFile


@dataclass(frozen=True)
class LiveFile:
    """A data file of the table with its delete files.

    `delete_files` are the position delete files and the deletion vector that apply to `data_file`; equality
    deletes are not among them. `sequence_number` is its data sequence number; None: it is not committed.
    """

    data_file: DataFile
    delete_files: tuple[DataFile, ...] = ()
    sequence_number: int | None = None
