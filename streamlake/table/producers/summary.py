"""The snapshot summary: what one commit added and removed, and the table's totals after it.

A producer counts files here while it builds a snapshot; `tests/helpers/invariants.py` recounts the result
from the manifests. Keys and rules: spec, Appendix F, Optional Snapshot Summary Fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from streamlake.spec.metadata.data_file import DataFile, FileContent

_TOTALS = {
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


def content_size_in_bytes(file: DataFile) -> int:
    """Bytes of the file's own content.

    For a deletion vector this is its blob, not the Puffin file that holds it.
    """
    if file.is_deletion_vector and file.content_size_in_bytes is not None:
        return file.content_size_in_bytes
    return file.file_size_in_bytes


@dataclass
class Counters:
    """Files, rows and bytes of one side (added or removed)."""

    data_files: int = 0
    records: int = 0
    size: int = 0
    delete_files: int = 0
    equality_delete_files: int = 0
    position_delete_files: int = 0
    dvs: int = 0
    position_deletes: int = 0
    equality_deletes: int = 0

    def count(self, file: DataFile) -> None:
        """Add one file to the counters."""
        self.size += content_size_in_bytes(file)
        if file.content == FileContent.DATA:
            self.data_files += 1
            self.records += file.record_count
            return
        self.delete_files += 1
        if file.content == FileContent.EQUALITY_DELETES:
            self.equality_delete_files += 1
            self.equality_deletes += file.record_count
            return
        self.position_deletes += file.record_count
        if file.is_deletion_vector:
            self.dvs += 1
        else:
            self.position_delete_files += 1


_ADDED_KEYS = {
    "data_files": "added-data-files",
    "equality_delete_files": "added-equality-delete-files",
    "position_delete_files": "added-position-delete-files",
    "delete_files": "added-delete-files",
    "dvs": "added-dvs",
    "records": "added-records",
    "size": "added-files-size",
    "position_deletes": "added-position-deletes",
    "equality_deletes": "added-equality-deletes",
}
_REMOVED_KEYS = {
    **{field: key.replace("added-", "removed-") for field, key in _ADDED_KEYS.items()},
    "data_files": "deleted-data-files",
    "records": "deleted-records",
}


class SummaryCounts:
    """Counts the files of one snapshot, for the whole table and per partition."""

    def __init__(self) -> None:
        self._added = Counters()
        self._removed = Counters()
        self._partitions: dict[str, tuple[Counters, Counters]] = {}
        self.deleted_duplicate_files = 0

    def add(self, file: DataFile, partition_path: str) -> None:
        """Count an added file, for the table and for its partition (a hive-style path)."""
        self._added.count(file)
        self._partition(partition_path)[0].count(file)

    def remove(self, file: DataFile, partition_path: str) -> None:
        """Count a removed file, for the table and for its partition (a hive-style path)."""
        self._removed.count(file)
        self._partition(partition_path)[1].count(file)

    def _partition(self, path: str) -> tuple[Counters, Counters]:
        return self._partitions.setdefault(path, (Counters(), Counters()))

    def as_summary(self, partition_limit: int) -> dict[str, str]:
        """The counters that are not zero; per partition when at most `partition_limit` ones changed."""
        summary = _nonzero(self._added, self._removed)
        if self.deleted_duplicate_files:
            summary["deleted-duplicate-files"] = str(self.deleted_duplicate_files)
        summary["changed-partition-count"] = str(len(self._partitions))
        if self._partitions and len(self._partitions) <= partition_limit:
            summary["partition-summaries-included"] = "true"
            for path, (added, removed) in self._partitions.items():
                if path:
                    parts = _nonzero(added, removed)
                    summary[f"partitions.{path}"] = ",".join(f"{key}={value}" for key, value in parts.items())
        return summary


def _nonzero(added: Counters, removed: Counters) -> dict[str, str]:
    summary = {}
    for counters, keys in ((added, _ADDED_KEYS), (removed, _REMOVED_KEYS)):
        for field in fields(counters):
            value = getattr(counters, field.name)
            if value:
                summary[keys[field.name]] = str(value)
    return summary


def totals(previous: Mapping[str, str] | None, summary: Mapping[str, str]) -> dict[str, str]:
    """The `total-*` counters after a snapshot, from its parent's summary (None: the table was empty).

    A total that the parent's summary lacks, or that would become negative, stays unknown, as in Iceberg.
    """
    result = {}
    for key, (added_key, removed_key) in _TOTALS.items():
        text = "0" if previous is None else previous.get(key)
        try:
            if text is not None:
                total = int(text) + int(summary.get(added_key, 0)) - int(summary.get(removed_key, 0))
                if total >= 0:
                    result[key] = str(total)
        except ValueError:
            continue
    return result


def count_files(files: Iterable[DataFile]) -> Counters:
    """Counters over some files, e.g. everything live in a snapshot."""
    counters = Counters()
    for file in files:
        counters.count(file)
    return counters


def counter_names(added: Counters, removed: Counters, total: Counters) -> dict[str, int]:
    """Every counter of a summary by its name: what a snapshot added and removed, and what is live in it."""
    counted = {key: getattr(added, field) for field, key in _ADDED_KEYS.items()}
    counted |= {key: getattr(removed, field) for field, key in _REMOVED_KEYS.items()}
    fields_by_key = {key: field for field, key in _ADDED_KEYS.items()}
    return counted | {
        key: getattr(total, fields_by_key[added_key]) for key, (added_key, _) in _TOTALS.items()
    }
