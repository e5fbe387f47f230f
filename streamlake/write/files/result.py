"""The WriteResult: what one attempt of one task wrote, sent from executor to driver as one binary value.

Only results of attempts that Spark counts as successful reach the driver. Files
of other attempts are orphans.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamlake.errors import DataInvalidError
from streamlake.index.runs.run_writer import RunRef
from streamlake.spec.metadata.data_file import DataFile
from streamlake.write.target.target import WriteTarget

Payload = bytes
_FORMAT = b"SLW1"


@dataclass(frozen=True)
class IndexChange:
    """A bucket of the key index after a checkpoint.

    `run` has the checkpoint's own entries (None: there are none). `merged` is the run that replaces all older
    runs in `merged_away`, which were merged into it.
    """

    bucket: int
    run: RunRef | None = None
    merged: RunRef | None = None
    merged_away: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """A change that was not applied, and why, with the position of its record (None: not known)."""

    topic: str | None
    partition: int | None
    offset: int | None
    reason: str


@dataclass(frozen=True)
class WriteResult:
    """The files of one task attempt, with how many rows and bytes they hold, and counters for progress.

    Identity is (job id, checkpoint id, task id, attempt). `bytes` is the sum of the files'
    sizes. An upsert task also reports:

    - `removed`: the files that `delete_files` replace: older delete files, and data files all of whose rows
      are deleted
    - `deleted_elsewhere`: rows that it found in data files of other tasks (path -> ascending int64 positions
      as bytes)
    - `index`: what happened to its bucket of the key index
    - `refused`: the changes that it refused
    - `truncated_below`: the source position of the last truncate that it received
    - `held_rows` and `moved_rows`: rows of key changes, see the module `key_changes`
    """

    job_id: str
    checkpoint_id: int
    task_id: int
    attempt: int
    data_files: tuple[DataFile, ...] = ()
    delete_files: tuple[DataFile, ...] = ()
    rows: int = 0
    bytes: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    removed: tuple[DataFile, ...] = ()
    deleted_elsewhere: Mapping[str, Payload] = field(default_factory=dict)
    index: IndexChange | None = None
    refused: tuple[Refused, ...] = ()
    truncated_below: int | str | None = None
    held_rows: Payload = b""
    moved_rows: Payload = b""

    @staticmethod
    def of(
        target: WriteTarget,
        task_id: int,
        attempt: int,
        data_files: Sequence[DataFile] = (),
        delete_files: Sequence[DataFile] = (),
        **found: Any,
    ) -> WriteResult:
        """The result of an attempt that has written these files; `found` are the other fields."""
        sizes = {file.file_path: file.file_size_in_bytes for file in (*data_files, *delete_files)}
        return WriteResult(
            target.job_id,
            target.checkpoint_id,
            task_id,
            attempt,
            tuple(data_files),
            tuple(delete_files),
            rows=sum(file.record_count for file in data_files),
            bytes=sum(sizes.values()),
            **found,
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file that the attempt wrote, runs of the key index too."""
        runs = () if self.index is None else (self.index.run, self.index.merged)
        files = (*self.data_files, *self.delete_files)
        return tuple(
            dict.fromkeys([*(f.file_path for f in files), *(run.path for run in runs if run is not None)])
        )

    def to_bytes(self) -> Payload:
        """Compact bytes for the way to the driver. They are not meant to be stored."""
        return _FORMAT + zlib.compress(pickle.dumps(self, protocol=5), level=1)

    @staticmethod
    def from_bytes(data: Payload) -> WriteResult:
        """The inverse of `to_bytes`. Raises DataInvalidError for anything else."""
        if data[: len(_FORMAT)] != _FORMAT:
            raise DataInvalidError(
                "a writer task sent a result of another version of streamlake; install the same version "
                "everywhere"
            )
        try:
            result = pickle.loads(zlib.decompress(data[len(_FORMAT) :]))
        except (zlib.error, pickle.UnpicklingError, EOFError, AttributeError) as cause:
            raise DataInvalidError(
                f"the result of a writer task is damaged ({cause!r}); run the job again"
            ) from cause
        if not isinstance(result, WriteResult):
            raise DataInvalidError(f"a writer task sent a {type(result).__name__} instead of its result")
        return result
