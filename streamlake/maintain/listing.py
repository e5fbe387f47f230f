"""Lists the files below folders, several folders at a time.

A folder is opened up until there are enough folders to list beside each other. Invariant: each file comes
once, even where one folder lies in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamlake.ahead import in_order
from streamlake.maintain.reachable_files import storage_key
from streamlake.storage.file_info import FileInfo
from streamlake.storage.file_io import FileIO

_AT_ONCE = 8
_LEVELS = 3


def listed(io: FileIO, directories: Iterable[str]) -> Iterator[FileInfo]:
    """Every file below these directories, each once. Missing directories have none."""
    folders = _outermost(directories)
    for _ in range(_LEVELS):
        if len(folders) >= _AT_ONCE:
            break
        levels = list(in_order(folders, lambda folder: [io.list_level(folder)], workers=_AT_ONCE))
        folders = []
        for files, inner in levels:
            yield from files
            folders += inner
    for files in in_order(folders, lambda folder: [list(io.list_prefix(folder))], workers=_AT_ONCE):
        yield from files


def _outermost(directories: Iterable[str]) -> list[str]:
    """The directories that lie in no other one of them."""
    roots: list[str] = []
    for directory in sorted(set(directories), key=lambda each: len(storage_key(each))):
        if not any(f"{storage_key(directory)}/".startswith(f"{storage_key(root)}/") for root in roots):
            roots.append(directory)
    return roots
