"""A cache of the live entries of a table's manifests, kept on the driver from commit to commit.

Manifests are immutable: one that a commit has read or written need not be decoded for the next. The cache
belongs to `Table` and is used by `ManifestFiles`. Invariants: cached entries equal those of the stored
manifest, and take at most `limit_bytes` of memory; the least recently used are dropped first.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from streamlake.formats.manifests.encoded_entries import EncodedEntry, EntryLayout
from streamlake.spec.metadata.manifest import ManifestFile

_LIMIT_BYTES = 64 * 1024 * 1024
_ENTRY_BYTES = 1_200
"""About how many bytes an entry takes beside its encoded bytes: the values of its
file, and its places in the sets.
"""

HeldKey = tuple[str, int | None, int | None, int | None, EntryLayout]


@dataclass(frozen=True)
class LiveEntries:
    """The live entries of one committed manifest as a later manifest lists them.

    Sets of paths and numbers summarize them.
    """

    entries: tuple[EncodedEntry, ...]
    paths: Set[str]
    targets: Set[str]
    oldest: int | None
    stored_count: int

    @staticmethod
    def of(entries: Iterable[EncodedEntry], manifest: ManifestFile) -> LiveEntries:
        """The live entries `entries` of `manifest`.

        `paths` are those of the files, `targets` those of the data files that delete files are
        for. `oldest` is the smallest sequence number above 0, `stored_count` the number of entries
        of any status in the manifest.
        """
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
        """About how many bytes of memory the entries take."""
        return sum(len(entry.encoded) + _ENTRY_BYTES for entry in self.entries)


class HeldEntries:
    """Live entries by manifest and layout. Not thread-safe, like the table that owns it."""

    def __init__(self, limit_bytes: int = _LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._held: dict[HeldKey, tuple[LiveEntries, int]] = {}
        self._size_bytes = 0

    def of(self, manifest: ManifestFile, layout: EntryLayout) -> LiveEntries | None:
        """The cached entries of a manifest, or None. They are now the most recently used."""
        key = _key(manifest, layout)
        found = self._held.pop(key, None)
        if found is None:
            return None
        self._held[key] = found
        return found[0]

    def hold(self, manifest: ManifestFile, layout: EntryLayout, live: LiveEntries) -> None:
        """Keep the entries of a committed manifest, unless they alone exceed the limit."""
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
    """The cache key.

    It has the ids, because another commit or an upgrade may give a manifest's entries other ids.
    """
    ids = (manifest.sequence_number, manifest.added_snapshot_id, manifest.first_row_id)
    return (manifest.manifest_path, *ids, layout)
