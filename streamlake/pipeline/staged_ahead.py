"""What a stream that writes ahead of its commits has staged: is all of it still there?

Spark takes such a checkpoint for done and does not run it again, so its file below the table's metadata folder is all that is
left of it. The directory's note tells of the last one, each staged checkpoint of the one before it. Invariant: one that is
neither in the table nor staged, as the directory's own log has it, is never passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streamlake.checkpoint.committable import Committable

FOLLOWS = "follows"
"""In a Committable of a run that writes ahead: the checkpoint that is committed before it."""


def lost_staged(
    held: int,
    last: int,
    pending: Callable[[], Iterable[Committable]],
    digest_of: Callable[[int], str | None],
) -> int | None:
    """The first checkpoint up to `last`, which Spark takes for done, that the table does not hold, which holds those up to `held`,
    and that is not staged ahead any more; None: there is none. `pending` is what is staged, asked only where it matters;
    `digest_of` is that of the offsets which a checkpoint ends at by the directory's log: a staged one with others is that of a
    copy of the directory. What was staged and committed at once is no part of the row: it does not say what came before it."""
    if held >= last:
        return None
    at = held
    for staged in sorted(pending(), key=lambda each: each.identity.checkpoint_id):
        identity = staged.identity
        is_own = digest_of(identity.checkpoint_id) in (None, identity.offsets_digest)
        if is_own and FOLLOWS in staged.extra and held < identity.checkpoint_id <= last:
            follows = int(staged.extra[FOLLOWS])
            if at < follows:
                return follows
            at = identity.checkpoint_id
    return last if at < last else None
