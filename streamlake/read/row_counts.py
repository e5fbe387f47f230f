"""How many rows a table has, as far as a snapshot's summary tells: its totals count deleted rows too.

Deleted rows stay in their data files until these are written anew; delete files and deletion vectors name
them. Invariant: a number of live rows is only given where it follows from the totals, else only a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RowCounts:
    """Counts of rows, None where the summary does not tell.

    `written` are the rows in the data files. `deleted` of them are deleted by position. `live` is what a scan
    finds; it is not known with equality deletes, as nobody knows how many rows those meet. `at_most` bounds
    it.
    """

    written: int | None
    deleted: int | None
    live: int | None
    at_most: int | None


def row_counts(summary: Mapping[str, str]) -> RowCounts:
    """The counts after the snapshot with this summary."""
    none = _total(summary, "total-delete-files") == 0
    written = _total(summary, "total-records")
    deleted = 0 if none else _total(summary, "total-position-deletes")
    by_equality = 0 if none else _total(summary, "total-equality-deletes")
    return counted_rows(written, deleted, by_equality)


def counted_rows(written: int | None, deleted: int | None, by_equality: int | None) -> RowCounts:
    """The counts that follow from the rows in data files, and from those in both kinds of delete files.

    More deletes than rows are of files that are gone, so they only leave the bound.
    """
    if written is None or deleted is None or deleted > written:
        return RowCounts(written, deleted, None, written)
    left = written - deleted
    return RowCounts(written, deleted, left if by_equality == 0 else None, left)


def _total(summary: Mapping[str, str], name: str) -> int | None:
    text = summary.get(name, "")
    return int(text) if text.isdecimal() else None
