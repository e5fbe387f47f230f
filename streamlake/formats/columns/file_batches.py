"""Shared parts of the readers of all three formats: the batch type, splits, and error translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from streamlake.errors import DataInvalidError
from streamlake.spec.metadata.data_file import DataFile
from streamlake.storage.file_io import storage_error

# (position in the file of the batch's first row, columns as the file has them)
FileBatches = Iterator[tuple[int, pa.RecordBatch]]
RowGroupFilter = Callable[[DataFile], bool]
Split = tuple[int, int]


def in_split(offset: int, split: Split | None) -> bool:
    """Whether a row group that starts at `offset` belongs to the split (start, length).

    A whole file counts as a row group at offset 0.
    """
    return split is None or split[0] <= offset < split[0] + split[1]


@contextmanager
def read_errors(path: str) -> Iterator[None]:
    """Context manager: storage failures become StorageError, damage becomes DataInvalidError."""
    try:
        yield
    except OSError as cause:
        if cause.errno is not None:
            raise storage_error("reading", path, cause) from cause
        raise _damaged(path, cause) from cause
    except (pa.ArrowException, UnicodeDecodeError) as cause:
        raise _damaged(path, cause) from cause


def _damaged(path: str, cause: Exception) -> DataInvalidError:
    return DataInvalidError(
        f"{path}: the file is damaged or not of its format ({cause}); restore it, or roll the table back to "
        "a snapshot that does not use it"
    )
