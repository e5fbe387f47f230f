"""The files that snapshots refer to, found by reading manifest lists and manifests, never by listing folders.

Each manifest is read once, however many snapshots share it, several at a time. Invariant: a file counts as
needed as long as any manifest of a kept snapshot lists it as live, whatever its manifest or spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from streamlake.ahead import in_order
from streamlake.errors import MissingFileError
from streamlake.formats.manifests.manifest_lists import snapshot_manifests
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.maintain.reachable_files import storage_key
from streamlake.on_progress import OnProgress, unseen
from streamlake.spec.metadata.manifest import ManifestFile
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.storage.file_io import FileIO

_AT_ONCE = 8


@dataclass(frozen=True)
class UnneededFiles:
    """The files that only expired snapshots refer to, path -> bytes (0: not known)."""

    data_files: Mapping[str, int] = field(default_factory=dict)
    delete_files: Mapping[str, int] = field(default_factory=dict)
    manifests: Mapping[str, int] = field(default_factory=dict)
    manifest_lists: Mapping[str, int] = field(default_factory=dict)
    statistics: Mapping[str, int] = field(default_factory=dict)

    @property
    def in_order(self) -> list[str]:
        """All of them, in the order in which they are deleted: what lists files comes after the files."""
        groups = (self.data_files, self.delete_files, self.statistics, self.manifests, self.manifest_lists)
        return [path for group in groups for path in group]

    @property
    def bytes(self) -> int:
        """Their size, as far as it is recorded."""
        groups = (self.data_files, self.delete_files, self.statistics, self.manifests, self.manifest_lists)
        return sum(sum(group.values()) for group in groups)


def unneeded_files(
    io: FileIO,
    before: TableMetadata,
    after: TableMetadata,
    is_protected: Callable[[str], bool],
    on_progress: OnProgress = unseen,
) -> UnneededFiles:
    """The files that snapshots of `before` refer to and no snapshot of `after`, without protected ones.

    Raises MissingFileError and DataInvalidError for metadata of `after` that cannot be read: then it is not
    known what is needed. What is missing of an expired snapshot was deleted before.
    """
    gone = [each for each in before.snapshots if each.snapshot_id not in after.snapshots_by_id]
    kept = {manifest.manifest_path: manifest for manifest in manifests_of(io, after.snapshots, on_progress)}
    kept_keys = set(map(storage_key, kept))
    kept_lists = {storage_key(each.manifest_list) for each in after.snapshots if each.manifest_list}
    loose = {
        manifest.manifest_path: manifest
        for manifest in manifests_of(io, gone, on_progress, may_lack=True)
        if storage_key(manifest.manifest_path) not in kept_keys
    }
    files = _only_in(io, loose.values(), kept.values(), before.specs_by_id, is_protected, on_progress)
    still = {entry.get("statistics-path") for entry in (*after.statistics, *after.partition_statistics)}
    return UnneededFiles(
        data_files={path: size for path, (size, is_data) in files.items() if is_data},
        delete_files={path: size for path, (size, is_data) in files.items() if not is_data},
        manifests={
            path: manifest.manifest_length for path, manifest in loose.items() if not is_protected(path)
        },
        manifest_lists={
            each.manifest_list: 0
            for each in gone
            if each.manifest_list and storage_key(each.manifest_list) not in kept_lists
        },
        statistics={
            str(entry["statistics-path"]): int(entry.get("file-size-in-bytes", 0))
            for entry in (*before.statistics, *before.partition_statistics)
            if entry.get("statistics-path") and entry["statistics-path"] not in still
        },
    )


def manifests_of(
    io: FileIO,
    snapshots: Iterable[Snapshot],
    on_progress: OnProgress = unseen,
    *,
    may_lack: bool = False,
) -> Iterator[ManifestFile]:
    """The manifests of snapshots, each once. `may_lack`: a missing manifest list is left out."""

    def read(snapshot: Snapshot) -> list[list[ManifestFile]]:
        try:
            return [snapshot_manifests(io, snapshot)]
        except MissingFileError:
            if not may_lack:
                raise
            return [[]]

    given = list(snapshots)
    seen: set[str] = set()
    for done, manifests in enumerate(in_order(given, read, workers=_AT_ONCE)):
        on_progress("manifest lists", done, len(given))
        for manifest in manifests:
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest


def live_files(
    io: FileIO,
    manifests: Iterable[ManifestFile],
    specs: Mapping[int, PartitionSpec],
    on_progress: OnProgress = unseen,
    *,
    may_lack: bool = False,
) -> Iterator[dict[str, tuple[int, bool]]]:
    """The live files of each manifest: path -> (bytes, whether it is a data file)."""

    def read(manifest: ManifestFile) -> list[dict[str, tuple[int, bool]]]:
        known = {manifest.partition_spec_id: PartitionSpec(manifest.partition_spec_id), **specs}
        try:
            entries = read_manifest(io, manifest, known, with_stats=False, live_only=True)
        except MissingFileError:
            if not may_lack:
                raise
            return [{}]
        files = (entry.data_file for entry in entries)
        return [{file.file_path: (file.file_size_in_bytes, file.is_data) for file in files}]

    given = list(manifests)
    for done, files in enumerate(in_order(given, read, workers=_AT_ONCE)):
        on_progress("manifests", done, len(given))
        yield files


def _only_in(
    io: FileIO,
    loose: Iterable[ManifestFile],
    kept: Iterable[ManifestFile],
    specs: Mapping[int, PartitionSpec],
    is_protected: Callable[[str], bool],
    on_progress: OnProgress,
) -> dict[str, tuple[int, bool]]:
    """The live files of `loose` manifests that no kept one lists as live, without protected ones."""
    found: dict[str, tuple[int, bool]] = {}
    for files in live_files(io, loose, specs, on_progress, may_lack=True):
        found.update(files)
    paths = {storage_key(path): path for path in found if not is_protected(path)}
    if paths:
        for files in live_files(io, kept, specs, on_progress):
            for path in files:
                paths.pop(storage_key(path), None)
    return {path: found[path] for path in paths.values()}
