"""Deletes many files at once, in groups, and counts them.

S3 deletes a group with one request; where that fails, the files are deleted one by one, and counted. A file
that cannot be deleted is reported and left: nothing refers to it any more, so the removal of orphans finds
it. Invariant: between two groups nothing is in progress, so a process may be stopped there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice

from streamlake.errors import StorageError
from streamlake.on_progress import OnProgress, unseen
from streamlake.storage.file_io import FileIO
from streamlake.storage.object_settings import S3_SCHEMES
from streamlake.storage.object_store import ObjectFileIO

AT_ONCE = 16
_GROUP = 128
_BATCH = 1000
"""Files of one request to S3, which takes no more."""
_GIVE_UP_AFTER = 100


@dataclass(frozen=True)
class Deleted:
    """How many files were deleted, how many were not, and the first error."""

    files: int = 0
    failed: int = 0
    error: str = ""

    def __add__(self, other: Deleted) -> Deleted:
        return Deleted(self.files + other.files, self.failed + other.failed, self.error or other.error)


def delete_files(
    io: FileIO,
    paths: Sequence[str],
    what: str,
    on_progress: OnProgress = unseen,
    after_group: Callable[[], None] = lambda: None,
) -> Deleted:
    """Delete files in parallel; a missing file counts as deleted.

    `after_group` is called between groups. It ends early where the first files all fail, with the others
    counted as failed.
    """
    rest = iter(paths)
    deleted = Deleted()
    batches = isinstance(io, ObjectFileIO) and io.scheme in S3_SCHEMES
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="streamlake-delete") as pool:
        while group := list(islice(rest, _BATCH if batches else _GROUP)):
            if isinstance(io, ObjectFileIO) and batches:
                try:
                    io.delete_all(group)
                except StorageError:
                    batches, rest = False, chain(group, rest)
                    continue
                deleted += Deleted(files=len(group))
                on_progress(what, deleted.files, len(paths))
                after_group()
                continue
            for error in pool.map(lambda path: _error(io, path), group):
                deleted += Deleted(files=1) if error is None else Deleted(failed=1, error=error)
            on_progress(what, deleted.files, len(paths))
            after_group()
            if not deleted.files and deleted.failed >= _GIVE_UP_AFTER:
                return replace(deleted, failed=len(paths))
    return deleted


def require_deleted(deleted: Deleted, done: str) -> None:
    """Raise StorageError where files are left, after what is `done` all the same."""
    if deleted.failed:
        raise StorageError(
            f"{done}, but {deleted.failed:,} of {deleted.failed + deleted.files:,} files could not be "
            f"deleted: {deleted.error}. Nothing refers to them: put that right, and `streamlake maintain "
            "TABLE --only orphans` deletes them once they are old enough"
        )


def _error(io: FileIO, path: str) -> str | None:
    try:
        io.delete(path)
    except StorageError as error:
        return str(error)
    return None
