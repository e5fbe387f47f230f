"""The rewrite of a branch's manifests: what there is to do, and the commit of it.

Invariant: where nothing would become better, nothing is committed, so it may run as often as one likes.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.table.producers.replace_manifests import ReplaceManifests, to_rewrite
from streamlake.table.table import Table
from streamlake.table.updates.metadata_changes import branch_head, require_writable


@dataclass(frozen=True)
class RewrittenManifests:
    """How many manifests were rewritten into how many, and all of the branch before and after.

    `added` and the `*_after` are None for a dry run. Bytes are of the manifests that were rewritten.
    """

    snapshot_id: int | None
    rewritten: int
    added: int | None
    before: int
    after: int | None
    bytes_before: int
    bytes_after: int | None
    dry_run: bool


def rewrite_manifests(
    table: Table, *, branch: str = MAIN_BRANCH, dry_run: bool = False
) -> RewrittenManifests:
    """Rewrite a branch's manifests by partition, to `commit.manifest.target-size-bytes` each.

    Raises CommitConflictError where other writers were faster each time.
    """
    base = table.refresh().metadata
    require_writable(base, table.name)
    manifests = table.manifests(branch_head(base, branch))
    groups = to_rewrite(base, manifests)
    rewritten = [manifest for group in groups for manifest in group]
    size = sum(manifest.manifest_length for manifest in rewritten)
    if dry_run or not rewritten:
        left = None if dry_run and rewritten else len(manifests)
        added = None if dry_run and rewritten else 0
        return RewrittenManifests(None, len(rewritten), added, len(manifests), left, size, added, dry_run)
    snapshot = ReplaceManifests(table, branch).commit()
    after = table.manifests(snapshot)
    new = [manifest for manifest in after if manifest.added_snapshot_id == snapshot.snapshot_id]
    return RewrittenManifests(
        snapshot.snapshot_id,
        int(snapshot.summary["manifests-replaced"]),
        len(new),
        len(manifests),
        len(after),
        size,
        sum(manifest.manifest_length for manifest in new),
        dry_run,
    )
