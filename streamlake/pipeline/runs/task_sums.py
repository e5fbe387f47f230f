"""Sums of what one checkpoint's writer tasks report, on the driver: counters, truncates, refused changes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from streamlake.pipeline.runs.upsert_options import UNSET_VALUES
from streamlake.write.files.result import Refused
from streamlake.write.upsert.truncation import TruncatePosition, later

_LOG = logging.getLogger(__name__)
_SHOWN = 20


def last_mark(marks: Iterable[TruncatePosition | None]) -> TruncatePosition | None:
    """The source position of the last truncate of a checkpoint; None without one."""
    last: TruncatePosition | None = None
    for mark in marks:
        last = later(last, mark)
    return last


def tell_refused(refused: Sequence[Refused]) -> None:
    """Log which changes were refused, and why."""
    if refused:
        places = ", ".join(f"{each.topic}-{each.partition} offset {each.offset}" for each in refused[:_SHOWN])
        _LOG.warning(
            "%d changes are not carried out, as the table property %s says: %s%s; the first: %s",
            len(refused),
            UNSET_VALUES,
            places,
            ", ..." if len(refused) > _SHOWN else "",
            refused[0].reason,
        )


def summed(parts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """The counters of several tasks, added up."""
    counters: Counter[str] = Counter()
    for part in parts:
        counters.update(part)
    return counters
