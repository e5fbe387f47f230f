"""Checks delete files against their data files: readable, about live files, within their rows.

It reads every delete file of a snapshot once, one at a time. Invariant: deletes for files that are gone are
no violation; compaction leaves them behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from streamlake.errors import DataInvalidError, FeatureUnsupportedError, MissingFileError
from streamlake.formats.deletes.deletion_vectors import read_deletion_vector
from streamlake.formats.deletes.position_deletes import read_position_deletes
from streamlake.operate.doctor.finding import Findings
from streamlake.operate.doctor.head_check import HeadCheck, LiveData, LiveDelete, place_of
from streamlake.spec.metadata.data_file import FileContent
from streamlake.storage.file_io import FileIO

Positions = np.ndarray[Any, np.dtype[np.int64]]


class DeleteCheck:
    """Checks the delete files of several heads; files that they share are read once.

    `step` is called per delete file.
    """

    def __init__(self, io: FileIO, location: str, findings: Findings, step: Callable[[], None]) -> None:
        self._io = io
        self._findings = findings
        self._step = step
        self._seen: set[tuple[str, int | None]] = set()
        self._fix = (
            "restore the file, or roll the table back to a snapshot without it (`streamlake inspect "
            f"{location} snapshots`)"
        )

    def check(self, head: HeadCheck) -> None:
        """Add what is wrong with the deletes of one snapshot."""
        for delete in head.deletes:
            self._step()
            if delete.file.identity in self._seen or delete.file.content == FileContent.EQUALITY_DELETES:
                continue
            self._seen.add(delete.file.identity)
            self._check_file(delete, head.data)

    def _check_file(self, delete: LiveDelete, data: Mapping[str, LiveData]) -> None:
        file = delete.file
        try:
            if file.is_deletion_vector:
                found = {file.referenced_data_file or "": read_deletion_vector(self._io, file)}
            else:
                found = dict(read_position_deletes(self._io, file))
        except MissingFileError:
            return  # reported by the check of all files
        except (DataInvalidError, FeatureUnsupportedError) as error:
            self._findings.error("delete-unreadable", file.file_path, str(error), self._fix)
            return
        gone = 0
        for path, positions in found.items():
            target = data.get(path)
            if target is None:
                gone += not file.is_deletion_vector
                continue
            self._check_positions(file.file_path, path, positions, target)
            if file.referenced_data_file is None and target.place != place_of(file):
                what = (
                    f"deletes rows of {path}, which is in another partition: readers do not find these "
                    "deletes"
                )
                self._findings.error("delete-scope", file.file_path, what, self._fix)
        if gone:
            what = f"deletes rows of {gone} data files that are no longer live"
            self._findings.note("delete-of-gone-file", file.file_path, what)

    def _check_positions(self, where: str, path: str, positions: Positions, target: LiveData) -> None:
        if len(positions) and (int(positions[0]) < 0 or int(positions[-1]) >= target.records):
            self._findings.error(
                "delete-position",
                where,
                f"deletes positions {int(positions[0])} to {int(positions[-1])} of {path}, which has "
                f"{target.records} rows",
                self._fix,
            )
