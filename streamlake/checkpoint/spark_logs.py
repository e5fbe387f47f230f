"""Makes Spark's logs in a local checkpoint directory durable, and removes damaged entries.

Spark does not sync these logs. Their entries are synced here before a checkpoint refers to them; damaged ones
are removed before a query starts. Invariant: an entry is removed only if Spark cannot read it, or if it means
nothing without an entry that is gone. Its checkpoint then runs again, and the table knows what was committed
of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from streamlake.checkpoint.torn_entries import is_torn_done, is_torn_plan
from streamlake.errors import MissingFileError
from streamlake.storage.file_io import scheme_of
from streamlake.storage.local import LocalFileIO, local_path

_QUERY = "metadata"
_PLANNED, _DONE, _SOURCES = "offsets", "commits", "sources"


def local_home(location: str) -> str | None:
    """The operating system's path of a checkpoint directory; None where it is on another storage."""
    return local_path(location).rstrip("/") if scheme_of(location) in ("", "file") else None


def sync_entries(home: str, checkpoint_id: int) -> None:
    """Sync a checkpoint's plan.

    It consists of Spark's entry for it and the newest entries of its sources, and with the first checkpoint
    of the query id. Raises StorageError.
    """
    paths = [f"{home}/{_PLANNED}/{checkpoint_id}", *_newest_of_sources(home)]
    if not checkpoint_id:
        paths.append(f"{home}/{_QUERY}")
    io = LocalFileIO()
    for path in paths:
        # A file manager other than Spark's own may name its files differently.
        with suppress(MissingFileError):
            io.sync(path)


def remove_torn(home: str) -> list[str]:
    """Remove damaged entries; returns their names.

    These are entries that a loss of power has emptied, newest entries that are cut short, and entries of the
    commit log whose plan is gone. In this order of checks, a driver that is at work in the same directory
    never appears to have damaged ones.
    """
    done = _numbers(f"{home}/{_DONE}")
    planned = _numbers(f"{home}/{_PLANNED}")
    torn = [f"{_PLANNED}/{number}" for number in planned if _is_empty(f"{home}/{_PLANNED}/{number}")]
    whole = [number for number in planned if f"{_PLANNED}/{number}" not in torn]
    while whole and is_torn_plan(_content(f"{home}/{_PLANNED}/{whole[-1]}")):
        torn.append(f"{_PLANNED}/{whole.pop()}")
    last = max(whole, default=-1)
    gone = [number for number in done if _is_empty(f"{home}/{_DONE}/{number}") or number > last]
    kept = [number for number in done if number not in gone]
    while kept and is_torn_done(_content(f"{home}/{_DONE}/{kept[-1]}")):
        gone.append(kept.pop())
    torn += [f"{_DONE}/{number}" for number in sorted(gone)]
    torn += [path.removeprefix(f"{home}/") for path in _newest_of_sources(home) if _is_empty(path)]
    if _is_empty(f"{home}/{_QUERY}"):
        torn.append(_QUERY)
    io = LocalFileIO()
    for name in torn:
        io.delete(f"{home}/{name}")
    return torn


def _newest_of_sources(home: str) -> Iterator[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        for source in sorted(os.listdir(f"{home}/{_SOURCES}")):
            directory = f"{home}/{_SOURCES}/{source}"
            names = {int(name.partition(".")[0]): name for name in _entries(directory)}
            if names:
                yield f"{directory}/{names[max(names)]}"


def _numbers(directory: str) -> list[int]:
    return sorted(int(name) for name in _entries(directory) if name.isdigit())


def _entries(directory: str) -> list[str]:
    """The names of a log's entries: numbers, with a suffix in the logs of some sources."""
    try:
        return [name for name in os.listdir(directory) if name.partition(".")[0].isdigit()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _is_empty(path: str) -> bool:
    try:
        return os.stat(path).st_size == 0
    except FileNotFoundError:
        return False
