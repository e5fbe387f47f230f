"""Merges small manifests while a snapshot is built, so that the manifest list stays short.

Called by the snapshot producer with all manifests of the new snapshot in order, newest first. Bins are packed
from the end (the oldest), so the bin that is not full is the newest, which grows with the next commits. The
rule is the same as Iceberg's, with `commit.manifest.min-count-to-merge` for the bin that holds this commit's
own manifests, and with one addition, `worth_rewriting`.

Invariants: sequence numbers and first row ids of live entries do not change, entries that earlier snapshots
deleted are dropped, and a staged manifest is never merged into another one by the commit that adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamlake.spec.metadata.manifest import ManifestEntry, ManifestFile
from streamlake.table.manifests.manifest_files import ManifestFiles, ManifestKey
from streamlake.table.options import ManifestOptions


def pack_from_end(
    manifests: Sequence[ManifestFile], target_size_bytes: int, size: Callable[[ManifestFile], int]
) -> list[list[ManifestFile]]:
    """Consecutive bins of at most `target_size_bytes` (or one manifest), filled from the end.

    The order is kept.
    """
    bins: list[list[ManifestFile]] = []
    used = 0
    for manifest in reversed(manifests):
        weight = size(manifest)
        if bins and used + weight <= target_size_bytes:
            bins[-1].append(manifest)
            used += weight
        else:
            bins.append([manifest])
            used = weight
    return [list(reversed(packed)) for packed in reversed(bins)]


def worth_rewriting(packed: Sequence[ManifestFile], target_size_bytes: int) -> Sequence[ManifestFile]:
    """The manifests of the growing bin without large old ones that are larger than all newer ones together.

    Merging a few new entries into a manifest of megabytes again and again would make the cost of
    commits grow with the table's size. So a manifest above an eighth of the target waits until
    rewriting it doubles its size.
    """
    count = len(packed)
    while count > 1:
        oldest = packed[count - 1].manifest_length
        if oldest * 8 <= target_size_bytes or oldest <= sum(
            part.manifest_length for part in packed[: count - 1]
        ):
            break
        count -= 1
    return packed[:count]


class ManifestMerger:
    """Merges manifests for one producer.

    Results are kept over commit attempts, by the manifests that were merged.
    """

    def __init__(self, files: ManifestFiles) -> None:
        self._files = files
        self._merged: dict[tuple[ManifestKey, ...], ManifestFile] = {}

    def merge(
        self, manifests: Sequence[ManifestFile], options: ManifestOptions, staged: frozenset[str]
    ) -> tuple[list[ManifestFile], int]:
        """The manifests after merging, and how many manifests of earlier snapshots were replaced.

        `manifests` have one content (data or deletes). Manifests whose paths
        are in `staged` stay as they are.
        """
        if not options.merge_enabled or len(manifests) < 2:
            return list(manifests), 0
        groups: dict[int, list[ManifestFile]] = {}
        for manifest in manifests:
            groups.setdefault(manifest.partition_spec_id, []).append(manifest)
        result: list[ManifestFile] = []
        replaced = 0
        for spec_id in sorted(groups, reverse=True):
            for packed in pack_from_end(groups[spec_id], options.target_size_bytes, _length):
                growing = manifests[0] in packed
                chosen = worth_rewriting(packed, options.target_size_bytes) if growing else packed
                chosen = [manifest for manifest in chosen if manifest.manifest_path not in staged]
                if (growing and len(packed) < options.min_count_to_merge) or len(chosen) < 2:
                    result.extend(packed)
                    continue
                left = [manifest for manifest in packed if manifest not in chosen]
                newer = [manifest for manifest in left if manifest.manifest_path in staged]
                older = [manifest for manifest in left if manifest.manifest_path not in staged]
                result += (*newer, self._merge_bin(chosen), *older)
                own = self._files.snapshot_id
                replaced += sum(1 for manifest in chosen if manifest.added_snapshot_id != own)
        return result, replaced

    def _merge_bin(self, manifests: Sequence[ManifestFile]) -> ManifestFile:
        key = tuple(map(self._files.key_of, manifests))
        if key not in self._merged:
            entries: list[ManifestEntry] = []
            for manifest in manifests:
                entries.extend(self._files.carried(manifest))
            first = manifests[0]
            self._merged[key] = self._files.write(entries, first.partition_spec_id, first.content)
        return self._merged[key]


def _length(manifest: ManifestFile) -> int:
    return manifest.manifest_length
