"""The WriteResult: what one attempt of one task wrote, sent from executor to driver as one binary value.

Only results of attempts that Spark counts as successful reach the driver; files of other attempts are orphans.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake.errors import DataInvalidError
from streamlake.spec.data_file import DataFile

Payload = bytes
_FORMAT = b"SLW1"


@dataclass(frozen=True)
class WriteResult:
    """The files of one task attempt, with how many rows and bytes they hold, and counters for progress.

    Identity is (job id, checkpoint id, task id, attempt). `bytes` is the sum of the files' sizes.
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

    def to_bytes(self) -> Payload:
        """Compact bytes for the way to the driver; not meant to be kept."""
        return _FORMAT + zlib.compress(pickle.dumps(self, protocol=5), level=1)

    @staticmethod
    def from_bytes(data: Payload) -> WriteResult:
        """The inverse of `to_bytes`. Raises DataInvalidError for anything else."""
        if data[: len(_FORMAT)] != _FORMAT:
            raise DataInvalidError(
                "a writer task sent a result of another version of streamlake; install the same version everywhere"
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
