"""Compares the files that a table needs with those in storage: missing, of another size, or orphans.

The folders are listed once; single requests are only made for files outside of them and for missing ones.
Invariant: a file is called an orphan only when everything that could refer to it has been read, and when it
is old enough not to be somebody's work in progress.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from streamlake import clock
from streamlake.errors import MissingFileError
from streamlake.maintain.listing import listed
from streamlake.maintain.reachable_files import (
    NeededFile,
    Orphan,
    ReachableFiles,
    is_temporary,
    storage_key,
)
from streamlake.on_progress import OnProgress
from streamlake.operate.doctor.finding import Findings
from streamlake.storage.file_info import FileInfo
from streamlake.storage.locations import metadata_version_of
from streamlake.table.table import Table

_READ_ALREADY = ("manifest", "manifest list")
_AT_ONCE = 8
_EVERY = 500
_SERVICE_VERSION = re.compile(r"(\d+)-[^/]*\.metadata\.json")


def need_metadata(table: Table, metadata_path: str, reachable: ReachableFiles) -> None:
    """Add what the metadata itself names: its versions and statistics files."""
    metadata = table.metadata
    reachable.need(metadata_path, None, "metadata file", "the catalog")
    reachable.need(table.locations.version_hint(), None, "version hint", "the catalog", required=False)
    for entry in metadata.metadata_log:
        reachable.need(entry.metadata_file, None, "metadata file", "metadata-log", required=False)
    for obj in (*metadata.statistics, *metadata.partition_statistics):
        path = obj.get("statistics-path")
        if path:
            reachable.need(path, obj.get("file-size-in-bytes"), "statistics file", "statistics")


class StorageCheck:
    """Compares `reachable` with the table's folders.

    Files younger than `min_age_ms` are not orphans yet. `judged_elsewhere` are directories in which only
    temporary files are looked for.
    """

    def __init__(
        self,
        table: Table,
        metadata_path: str,
        reachable: ReachableFiles,
        findings: Findings,
        on_progress: OnProgress,
        *,
        min_age_ms: int,
        judged_elsewhere: Collection[str] = (),
    ) -> None:
        self._table = table
        self._reachable = reachable
        self._findings = findings
        self._on_progress = on_progress
        self._before_ms = clock.now_ms() - min_age_ms
        self._version = _version_of(metadata_path)
        logged = [_version_of(entry.metadata_file) for entry in table.metadata.metadata_log]
        self._oldest_logged = min(
            (version for version in logged if version is not None), default=self._version
        )
        self._index = _folder(table.locations.index_directory)
        self._data = _folder(table.locations.data_directory)
        self._elsewhere = tuple(_folder(path) for path in judged_elsewhere)
        self.files = 0
        self.bytes = 0

    def run(self) -> tuple[Orphan, ...]:
        """Add what is wrong to the findings; returns the orphans, oldest first."""
        orphans = []
        for info in listed(self._table.io, self._directories()):
            self.files += 1
            self.bytes += info.size
            if self.files % _EVERY == 0:
                self._on_progress("files", self.files, None)
            needed = self._reachable.found(info)
            if needed is not None:
                self._check_size(needed, info.size)
            elif info.modified_ms <= self._before_ms:
                kind = self._orphan_kind(info)
                if kind is not None:
                    orphans.append(Orphan(info.path, info.size, info.modified_ms, kind))
        self._check_others()
        if not self._reachable.is_complete:
            temporary = [orphan for orphan in orphans if orphan.kind == "temporary"]
            self._findings.note(
                "orphans-unknown",
                self._table.location,
                "orphans cannot be listed, because metadata that lists files cannot be read",
                "put that right first",
            )
            return tuple(temporary)
        return tuple(sorted(orphans, key=lambda orphan: orphan.modified_ms))

    def _directories(self) -> list[str]:
        locations = self._table.locations
        found = [locations.metadata_directory, locations.root_metadata_directory]
        if self._data.startswith(_folder(self._table.location)):
            found.append(locations.data_directory)
        else:
            self._findings.note(
                "orphans-unknown",
                locations.data_directory,
                "the table's data lies outside of its location, perhaps beside other tables': no orphans "
                "are looked for there",
            )
        return found

    def _orphan_kind(self, info: FileInfo) -> str | None:
        """What kind of orphan a file is that nothing refers to; None when it belongs there all the same."""
        if is_temporary(info.path):
            return "temporary"
        key = storage_key(info.path)
        if key.startswith(self._elsewhere):
            return None
        if key.startswith(self._index):
            return "index"
        if key.startswith(self._data):
            return "data"
        version = _version_of(info.path)
        # Metadata versions from before the log are the table's history; Hadoop tables keep them all.
        if version is not None and self._version is not None:
            is_hadoop = metadata_version_of(info.path) is not None
            if version <= self._version and (is_hadoop or version < (self._oldest_logged or 0)):
                return None
        return "metadata"

    def _check_size(self, needed: NeededFile, size: int) -> None:
        if needed.size is None or size == needed.size or not needed.required:
            return
        if needed.kind in _READ_ALREADY and size < needed.size:
            return  # reported by its reader
        self._findings.error(
            "file-size",
            needed.path,
            f"the {needed.kind} has {size:,} bytes, {needed.by} says {needed.size:,}",
            f"restore the file, or {self._roll_back()}",
        )

    def _check_others(self) -> None:
        """Check required files that the listing has not shown: outside of the table's folders, or missing."""
        others = [each for each in self._reachable.not_found() if each.kind not in _READ_ALREADY]
        with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="streamlake-doctor") as pool:
            for done, (needed, size) in enumerate(zip(others, pool.map(self._size, others), strict=True)):
                self._on_progress("files elsewhere", done, len(others))
                if size is not None:
                    self._check_size(needed, size)
                    continue
                self._findings.error(
                    "file-missing",
                    needed.path,
                    f"the {needed.kind} is not there; {needed.by} refers to it",
                    f"restore the file, or {self._roll_back()}",
                )

    def _size(self, needed: NeededFile) -> int | None:
        try:
            return self._table.io.size(needed.path)
        except MissingFileError:
            return None

    def _roll_back(self) -> str:
        return (
            f"roll the table back to a snapshot without it (`streamlake inspect {self._table.location} "
            "snapshots`)"
        )


def _folder(path: str) -> str:
    return f"{storage_key(path).rstrip('/')}/"


def _version_of(path: str) -> int | None:
    """The number of a metadata file, of a Hadoop table or a catalog service's; None for any other file."""
    version = metadata_version_of(path)
    if version is not None:
        return version
    match = _SERVICE_VERSION.fullmatch(path.rpartition("/")[2])
    return int(match[1]) if match else None
