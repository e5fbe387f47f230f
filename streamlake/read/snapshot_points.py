"""Points in a table's history as users name them: a snapshot id, a branch, a tag, or a time."""

from __future__ import annotations

from datetime import date, datetime

from streamlake.errors import InvalidOptionError
from streamlake.options import suggestion
from streamlake.read.scan import epoch_ms
from streamlake.spec.metadata.snapshot import Snapshot
from streamlake.table.table import Table

SnapshotPoint = int | str | datetime | date
"""A snapshot id; text: the name of a branch or tag, a snapshot id, or an ISO time; a datetime or date
(UTC).
"""


def end_snapshot(table: Table, point: SnapshotPoint | None) -> Snapshot | None:
    """The snapshot that is meant, for a time the one that was current then; None: the current one.

    Raises InvalidOptionError when there is none.
    """
    if point is None:
        return table.current_snapshot
    found = _id_or_ref(table, point)
    if isinstance(found, int):
        return table.snapshot_by(snapshot_id=found)
    if isinstance(found, str):
        return table.snapshot_by(ref=found)
    return table.snapshot_by(as_of_ms=_time(table, point))


def start_snapshot_id(table: Table, point: SnapshotPoint | None, end: Snapshot | None) -> int | None:
    """The id of the snapshot after which to begin; None: at the table's beginning.

    For a time it is the newest snapshot on the way to `end` that was committed then or before; None when all
    that are left are younger. An id need not exist any more. Raises InvalidOptionError when there is no such
    branch or tag.
    """
    if point is None:
        return None
    found = _id_or_ref(table, point)
    if isinstance(found, int):
        return found
    if isinstance(found, str):
        start = table.snapshot_by(ref=found)
        return None if start is None else start.snapshot_id
    moment = _time(table, point)
    before = None if end is None else end.snapshot_id
    for snapshot in table.metadata.ancestors(before):
        if snapshot.timestamp_ms <= moment:
            return snapshot.snapshot_id
    return None


def _id_or_ref(table: Table, point: SnapshotPoint) -> int | str | None:
    """An id as a number, the name of a ref as text; None for a time."""
    if isinstance(point, bool):
        raise InvalidOptionError(f"{point!r} is no snapshot; give an id, a branch, a tag or a time")
    if isinstance(point, int):
        return point
    if isinstance(point, str):
        text = point.strip()
        if text in table.refs or text == "main":
            return text
        if text.isdigit():
            return int(text)
    return None


def _time(table: Table, point: SnapshotPoint) -> int:
    try:
        return epoch_ms(point)
    except InvalidOptionError:
        near = suggestion(str(point), table.refs)
        hint = (
            f"did you mean {near!r}?" if near else f"its branches and tags: {', '.join(sorted(table.refs))}"
        )
        raise InvalidOptionError(
            f"table {table.name}: {point!r} is no snapshot id, branch, tag or ISO time; {hint}"
        ) from None
