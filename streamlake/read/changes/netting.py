"""Pairs the rows that were removed with those that were added, and nets what cancels out.

Works on the numbers of rows in one table of removed and added rows, in the order of the snapshots and, within
one snapshot, what it removed before what it added. With an identity (a key, or the row id) the events of one
row alternate between removed and added. So the first says what the row was before all of them, and the last
what it is after: equal values are no change, different ones an update. Where they do not alternate, or what
is removed is not what was added, several rows share a key. For those, and for rows without an identity, equal
values cancel out one by one, and what is left of a key is paired in order. Invariant: the changes applied to
the rows before give the rows after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamlake.records import RowKind

Array = Any  # numpy arrays; numpy's type stubs are not required

NO_IDENTITY = -1
"""The code of a row that belongs to no other."""


def _no_rows() -> Array:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class NetChanges:
    """The changes that are left, as numbers of rows: all (m,) int64, and `kinds` (m,) int8 of RowKind.

    `rows` says where the values are, `events` which row's snapshot the change belongs to: the last one that
    changed the row. Removed rows come first, then updates, old beside new, then added rows.
    """

    rows: Array
    events: Array
    kinds: Array


@dataclass(frozen=True)
class Comparison:
    """How rows are compared, by their numbers.

    `equal(left, right)` gives (n,) bool for two (n,) arrays of numbers; `values(rows)` gives (n,) codes that
    are the same for rows that may cancel out.
    """

    equal: Callable[[Array, Array], Array]
    values: Callable[[Array], Array]


@dataclass
class _Found:
    """Changes found so far: pairs of old and new rows, and single rows.

    `events` (n,) is the number of the last event of each row that is found.
    """

    events: Array
    old: Array = field(default_factory=_no_rows)
    new: Array = field(default_factory=_no_rows)
    single: Array = field(default_factory=_no_rows)


def net_changes(added: Array, identities: Array | None, compared: Comparison, *, keyed: bool) -> NetChanges:
    """The changes of n rows: `added` (n,) bool, `identities` (n,) int64 codes or None without any.

    `keyed` says that rows of different identities are different rows even when all values are equal. Without
    it (row ids) such rows cancel out as those without identity do.
    """
    rest: Array = np.arange(len(added))
    found = _Found(np.arange(len(added)))
    if identities is not None:
        rest = _by_identity(found, added, identities, compared)
        if not keyed:
            rest = np.sort(np.concatenate([rest, found.single]))
            found.single = _no_rows()
    if len(rest):
        rest = _without_equals(rest, added, compared)
        _pair_in_order(found, rest, added, identities)
    return _ordered(found, added)


def _by_identity(found: _Found, added: Array, identities: Array, compared: Comparison) -> Array:
    """Adds what rows with alternating events came to; the numbers of all other rows, ascending."""
    order = np.argsort(identities, kind="stable")
    order = order[int(np.searchsorted(identities[order], NO_IDENTITY, side="right")) :]
    alone = np.flatnonzero(identities == NO_IDENTITY)
    if not len(order):
        return alone
    codes, plus = identities[order], added[order]
    changes = codes[1:] != codes[:-1]
    starts: Array = np.append(0, np.flatnonzero(changes) + 1)
    ends: Array = np.append(starts[1:], len(order)) - 1
    groups: Array = np.append(0, np.cumsum(changes))
    irregular: Array = np.zeros(len(starts), dtype=bool)
    irregular[groups[1:][~changes & (plus[1:] == plus[:-1])]] = True
    # What is removed after it was added has the values that were added, or it is another row of the same key.
    again = np.flatnonzero(~changes & plus[:-1] & ~plus[1:])
    if len(again):
        irregular[groups[again[~compared.equal(order[again], order[again + 1])]]] = True
    first, last = order[starts[~irregular]], order[ends[~irregular]]
    was, is_ = ~added[first], added[last]
    old, new = first[was & is_], last[was & is_]
    differ = ~compared.equal(old, new) if len(old) else np.empty(0, dtype=bool)
    one = was != is_
    found.old, found.new = old[differ], new[differ]
    found.single = np.where(was[one], first[one], last[one])
    found.events[found.single] = last[one]
    return np.sort(np.concatenate([alone, order[irregular[groups]]]))


def _without_equals(rest: Array, added: Array, compared: Comparison) -> Array:
    """The rows, ascending, without as many added ones as there are equal removed ones, and the reverse."""
    plus = added[rest]
    if plus.all() or not plus.any():
        return rest
    values = compared.values(rest)
    order = np.argsort(values, kind="stable")
    codes, plus = values[order], plus[order]
    starts: Array = np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)
    sizes: Array = np.diff(np.append(starts, len(order)))
    balance = np.add.reduceat(np.where(plus, 1, -1), starts)
    # The last of the added rows are there in the end, the first of the removed ones were there before.
    rank = np.cumsum(plus)
    from_last = np.repeat(np.add.reduceat(plus, starts, dtype=np.int64), sizes) - (
        rank - np.repeat(rank[starts] - plus[starts], sizes)
    )
    minus = np.cumsum(~plus)
    from_first = minus - np.repeat(minus[starts] - ~plus[starts], sizes)
    wanted: Array = np.repeat(balance, sizes)
    kept = np.where(plus, from_last < wanted, from_first <= -wanted)
    return np.sort(rest[order[kept]])


def _pair_in_order(found: _Found, rest: Array, added: Array, identities: Array | None) -> None:
    """Adds the rows to `found`: the i-th removed row of an identity with its i-th added row."""
    olds, news = rest[~added[rest]], rest[added[rest]]
    if identities is not None and len(olds) and len(news):
        left, right = _matches(identities[olds], identities[news])
        found.old = np.concatenate([found.old, olds[left]])
        found.new = np.concatenate([found.new, news[right]])
        olds, news = np.delete(olds, left), np.delete(news, right)
    found.single = np.concatenate([found.single, olds, news])


def _matches(left: Array, right: Array) -> tuple[Array, Array]:
    """Indexes of the i-th occurrences of equal codes; codes without identity match nothing."""
    sides = []
    for codes in (left, right):
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]
        starts: Array = np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
        occurrence = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
        keep = ordered != NO_IDENTITY
        sides.append((order[keep], ordered[keep], occurrence[keep]))
    width = max((int(occurrence.max()) + 1 for _, _, occurrence in sides if len(occurrence)), default=1)
    (ours, left_codes, left_at), (theirs, right_codes, right_at) = sides
    _, at, to = np.intersect1d(
        left_codes * width + left_at, right_codes * width + right_at, assume_unique=True, return_indices=True
    )
    return ours[at], theirs[to]


def _ordered(found: _Found, added: Array) -> NetChanges:
    pairs = np.argsort(found.new, kind="stable")
    old, new = found.old[pairs], found.new[pairs]
    single = found.single[np.argsort(found.events[found.single], kind="stable")]
    events = found.events[single]
    paired = np.maximum(found.events[old], found.events[new])
    plus = added[single]
    both = np.stack([old, new], axis=1).reshape(-1)
    kinds = np.concatenate(
        [
            np.full(int((~plus).sum()), RowKind.DELETE, dtype=np.int8),
            np.tile(np.array([RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER], dtype=np.int8), len(new)),
            np.full(int(plus.sum()), RowKind.INSERT, dtype=np.int8),
        ]
    )
    return NetChanges(
        np.concatenate([single[~plus], both, single[plus]]),
        np.concatenate([events[~plus], np.repeat(paired, 2), events[plus]]),
        kinds,
    )
