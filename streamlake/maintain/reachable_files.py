"""Which files a table needs, and which of its folders hold files that it does not need.

Filled by whoever reads metadata, manifests or staged checkpoints; then the folders are listed once, against it.
Invariant: what the storage calls by another spelling (`/t/f` and `file:/t/f`) is the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from streamlake.storage.file_info import FileInfo
from streamlake.storage.file_io import FileIO
from streamlake.storage.local import local_path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_TEMPORARY = re.compile(r"\.[^/]*\.tmp|_temporary|.*\.inprogress.*")


def storage_key(path: str) -> str:
    """The same text for every spelling of one file's path."""
    if path.startswith("/") or path[:5].lower() == "file:":
        return local_path(path)
    return _SCHEME.sub("", path)


@dataclass(frozen=True)
class NeededFile:
    """A file that something refers to. `size` in bytes is None where nothing tells it; `kind` is a word for it, and
    `by` what refers to it. `required` is False for what may be gone, and must not be removed while it is there."""

    path: str
    size: int | None
    kind: str
    by: str
    required: bool = True


class ReachableFiles:
    """The files that a table, its key index and its staged checkpoints refer to."""

    def __init__(self) -> None:
        self.is_complete = True
        """False when something that refers to files could not be read: then nothing is known to be an orphan."""
        self._needed: dict[str, NeededFile] = {}
        self._seen: set[str] = set()

    def __len__(self) -> int:
        return len(self._needed)

    def need(self, path: str, size: int | None, kind: str, by: str, *, required: bool = True) -> None:
        """`by` refers to a file, and thinks that it has `size` bytes."""
        key = storage_key(path)
        known = self._needed.get(key)
        if known is None or (required and not known.required):
            self._needed[key] = NeededFile(path, size, kind, by, required)

    def found(self, info: FileInfo) -> NeededFile | None:
        """What is known of a file that a listing shows; None when nothing refers to it."""
        key = storage_key(info.path)
        needed = self._needed.get(key)
        if needed is not None:
            self._seen.add(key)
        return needed

    def not_found(self) -> list[NeededFile]:
        """What is required and no listing has shown."""
        return [each for key, each in self._needed.items() if each.required and key not in self._seen]


@dataclass(frozen=True)
class Orphan:
    """A file that nothing refers to. `kind`: data, metadata, index or temporary; times in epoch milliseconds."""

    path: str
    size: int
    modified_ms: int
    kind: str


def listed(io: FileIO, directories: list[str]) -> Iterator[FileInfo]:
    """Every file below these directories, each once, although one may lie in another."""
    roots: list[str] = []
    for directory in sorted(set(directories), key=lambda each: len(storage_key(each))):
        if not any(f"{storage_key(directory)}/".startswith(f"{storage_key(root)}/") for root in roots):
            roots.append(directory)
    for root in roots:
        yield from io.list_prefix(root)


def is_temporary(path: str) -> bool:
    """Whether a file is by its name one that was being written: ours, Hadoop's or Flink's."""
    return any(_TEMPORARY.fullmatch(part) for part in path.split("/")[-2:])
