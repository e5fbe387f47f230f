"""Whether an object store honours conditional puts, on which commits to a table without a catalog depend.

A store that ignores `If-None-Match` accepts both of two racing commits, and one of them is lost. So it is
tried once per process and bucket, before the first commit there.
"""

from __future__ import annotations

import contextlib

from streamlake import ids
from streamlake.errors import FeatureUnsupportedError, StorageError
from streamlake.storage.file_io import FileIO, scheme_of
from streamlake.storage.object_settings import OBJECT_SCHEMES

_known: set[str] = set()
"""The buckets that have been tried in this process."""


def require_conditional_put(io: FileIO, directory: str) -> None:
    """Raises FeatureUnsupportedError where the store of `directory` creates an object twice, StorageError
    where nothing can be written. Does nothing for other storage, and for a bucket that was tried before.
    """
    if scheme_of(directory) not in OBJECT_SCHEMES:
        return
    bucket = "/".join(directory.split("/")[:3])
    if bucket in _known:
        return
    probe = f"{directory}/.streamlake-probe-{ids.new_uuid()}"
    io.create_exclusive(probe, b"first")
    try:
        io.create_exclusive(probe, b"second")
    except FileExistsError:
        _known.add(bucket)
    else:
        raise FeatureUnsupportedError(
            f"{bucket}: this object store does not honour conditional puts (If-None-Match), so it cannot "
            "decide between two commits to a table that is opened by its path. Use a catalog service "
            "(catalog=...), or a store that has them"
        )
    finally:
        with contextlib.suppress(StorageError):
            io.delete(probe)
