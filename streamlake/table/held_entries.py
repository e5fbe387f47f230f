"""Live entries of a table's manifests, held on the driver from commit to commit.

Manifests are immutable: one that was read for a commit, or written by it, need not be decoded for the next. Owned by
`Table`, filled and asked by `ManifestFiles`. Invariants: what is held equals what the stored manifest says, and takes
`limit_bytes` of memory at most, the least recently used going first.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from streamlake.formats.encoded_entries import EncodedEntry, EntryLayout
from streamlake.spec.manifest import ManifestFile

_LIMIT_BYTES = 64 * 1024 * 1024
_ENTRY_BYTES = 1_200
"""What an entry takes beside its encoded bytes, about: the values of its file, and its places in the sets."""

HeldKey = tuple[str, int | None, int | None, int | None, EntryLayout]


@dataclass(frozen=True)
class LiveEntries:
    """The live entries of one committed manifest as a later manifest lists them, and what they can be told by."""

    entries: tuple[EncodedEntry, ...]
    paths: Set[str]
    targets: Set[str]
    oldest: int | None
    stored_count: int

    @staticmethod
    def of(entries: Iterable[EncodedEntry], manifest: ManifestFile) -> LiveEntries:
        """`paths` are those of the files, `targets` of the data files that delete files are for; `oldest` is the smallest
        sequence number above 0, `stored_count` the number of entries of any status in the manifest."""
        entries = tuple(entries)
        numbers = {entry.sequence_number for entry in entries}
        counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
        targets = (entry.data_file.deletes_from for entry in entries if not entry.data_file.is_data)
        return LiveEntries(
            entries,
            frozenset(entry.data_file.file_path for entry in entries),
            frozenset(path for path in targets if path is not None),
            min((number for number in numbers if number), default=None),
            len(entries) if None in counts else sum(count or 0 for count in counts),
        )

    @property
    def size_bytes(self) -> int:
        """Memory that is held, about."""
        return sum(len(entry.encoded) + _ENTRY_BYTES for entry in self.entries)


class HeldEntries:
    """Entries by manifest and layout. Not thread-safe, like the table that owns it."""

    def __init__(self, limit_bytes: int = _LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._held: dict[HeldKey, tuple[LiveEntries, int]] = {}
        self._size_bytes = 0

    def of(self, manifest: ManifestFile, layout: EntryLayout) -> LiveEntries | None:
        key = _key(manifest, layout)
        found = self._held.pop(key, None)
        if found is None:
            return None
        self._held[key] = found
        return found[0]

    def hold(self, manifest: ManifestFile, layout: EntryLayout, live: LiveEntries) -> None:
        """Keep the entries of a committed manifest, unless they are more than all that may be held."""
        size = live.size_bytes
        if size > self._limit_bytes:
            return
        _, before = self._held.pop(_key(manifest, layout), (None, 0))
        self._held[_key(manifest, layout)] = live, size
        self._size_bytes += size - before
        while self._size_bytes > self._limit_bytes:
            _, dropped = self._held.pop(next(iter(self._held)))
            self._size_bytes -= dropped


def _key(manifest: ManifestFile, layout: EntryLayout) -> HeldKey:
    """Another commit, or an upgrade, may give a manifest's entries other ids."""
    ids = (manifest.sequence_number, manifest.added_snapshot_id, manifest.first_row_id)
    return (manifest.manifest_path, *ids, layout)
