"""A live data file as upserts see it: where it belongs, and what is deleted from it already."""

from __future__ import annotations

from dataclasses import dataclass

from streamlake.spec.data_file import DataFile


@dataclass(frozen=True)
class LiveFile:
    """`delete_files` are the position delete files and the deletion vector that apply to `data_file`; equality
    deletes are not among them. `sequence_number` is its data sequence number; None: it is not committed."""

    data_file: DataFile
    delete_files: tuple[DataFile, ...] = ()
    sequence_number: int | None = None
