"""The check that everything is still there which a stream has staged ahead of its commits.

Spark counts such a checkpoint as done and does not run it again, so its file below the table's metadata
folder is all that is left of it. The directory's note records the last one; each staged checkpoint records
the one before it. Invariant: a checkpoint that is neither in the table nor staged, with the offsets of the
directory's own log, is never skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streamlake.checkpoint.committable import Committable


def lost_staged(
    held: int,
    last: int,
    pending: Callable[[], Iterable[Committable]],
    digest_of: Callable[[int], str | None],
) -> int | None:
    """The first lost checkpoint: Spark counts it as done, the table does not hold it, and it is not staged
    ahead any more. None: no checkpoint is lost.

    `held` is the last checkpoint in the table, `last` the last one that Spark counts as done. `pending` gives
    what is staged, called only where it matters. `digest_of` gives the digest of a checkpoint's end offsets
    in the directory's log: a staged checkpoint with another digest belongs to a copy of the directory. A
    checkpoint that was staged and committed at once does not count here: it does not record the one before
    it.
    """
    if held >= last:
        return None
    at = held
    for staged in sorted(pending(), key=lambda each: each.identity.checkpoint_id):
        identity = staged.identity
        is_own = digest_of(identity.checkpoint_id) in (None, identity.offsets_digest)
        follows = staged.extra.follows
        if is_own and follows is not None and held < identity.checkpoint_id <= last:
            if at < follows:
                return follows
            at = identity.checkpoint_id
    return last if at < last else None
