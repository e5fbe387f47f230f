"""The files that a table needs, and the search for files in its folders that it does not need.

The checks of metadata, manifests and staged checkpoints fill it; then the folders are listed once and
compared with it. Invariant: different spellings of one path in the storage (`/t/f` and `file:/t/f`) are the
same file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from os.path import normpath

from streamlake.storage.file_info import FileInfo
from streamlake.storage.local import local_path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_UNUSUAL = re.compile(r"//|/\.\.?(?:/|$)")
_TEMPORARY = re.compile(r"\.[^/]*\.tmp|_temporary|.*\.inprogress.*")


def storage_key(path: str) -> str:
    """One text for every spelling of a file's path."""
    if path.startswith("/") or path[:5].lower() == "file:":
        local = local_path(path)
        return normpath(local) if _UNUSUAL.search(local) else local
    return _SCHEME.sub("", path)


@dataclass(frozen=True)
class NeededFile:
    """A file that something refers to.

    `size` in bytes is None where nothing records it. `kind` is a word for it, and `by` what refers to it.
    `required` is False for a file that may be missing, but must not be removed while it exists.
    """

    path: str
    size: int | None
    kind: str
    by: str
    required: bool = True


class ReachableFiles:
    """The files that a table, its key index and its staged checkpoints refer to."""

    def __init__(self) -> None:
        self.is_complete = True
        """False when something that refers to files could not be read: then no file is surely an orphan."""
        self._needed: dict[str, NeededFile] = {}
        self._seen: set[str] = set()

    def __len__(self) -> int:
        return len(self._needed)

    def need(self, path: str, size: int | None, kind: str, by: str, *, required: bool = True) -> None:
        """Record that `by` refers to a file, and records its size as `size` bytes."""
        key = storage_key(path)
        known = self._needed.get(key)
        if known is None or (required and not known.required):
            self._needed[key] = NeededFile(path, size, kind, by, required)

    def found(self, info: FileInfo) -> NeededFile | None:
        """What is known of a listed file; None when nothing refers to it."""
        key = storage_key(info.path)
        needed = self._needed.get(key)
        if needed is not None:
            self._seen.add(key)
        return needed

    def not_found(self) -> list[NeededFile]:
        """The required files that no listing has shown."""
        return [each for key, each in self._needed.items() if each.required and key not in self._seen]


@dataclass(frozen=True)
class Orphan:
    """A file that nothing refers to. `kind`: data, metadata, index or temporary; times in epoch ms."""

    path: str
    size: int
    modified_ms: int
    kind: str


def is_temporary(path: str) -> bool:
    """Whether the name of a file is that of one being written, by streamlake, Hadoop or Flink."""
    return any(_TEMPORARY.fullmatch(part) for part in path.split("/")[-2:])
