"""Checks whether files could be written below a location, without leaving anything there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

from streamlake import ids
from streamlake.errors import StorageError
from streamlake.storage.file_io import file_io_for, scheme_of


def require_writable(location: str, properties: Mapping[str, str] | None = None) -> None:
    """Raise StorageError if files below the directory `location` could not be written.

    The directory need not exist yet. A file is written and deleted: on a local file system in the nearest
    directory that exists, elsewhere below the location. Raises FeatureUnsupportedError for storage that is
    not supported.
    """
    scheme = scheme_of(location)
    if scheme in ("", "file"):
        _require_local(Path(unquote(urlparse(location).path) if scheme else location))
        return
    io = file_io_for(location, properties)
    probe = f"{location.rstrip('/')}/.streamlake-probe-{ids.new_uuid()}"
    io.write_bytes(probe, b"")
    io.delete(probe)


def _require_local(directory: Path) -> None:
    for existing in (directory, *directory.absolute().parents):
        if existing.exists():
            break
    if not existing.is_dir():
        raise StorageError(f"{directory} cannot be written, because {existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StorageError(
            f"{directory} cannot be written: this user may not create files in {existing}; change its owner "
            "or permissions"
        )
    probe = existing / f".streamlake-probe-{ids.new_uuid()}"
    try:
        if existing != directory:  # directories are to be made as well
            probe.mkdir()
            probe.rmdir()
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise StorageError(
            f"{directory} cannot be written: {existing} takes no file ({error.strerror}); choose another "
            "place, or make room or change the permissions there"
        ) from error
