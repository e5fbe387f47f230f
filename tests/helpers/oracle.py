"""What a table must hold after a stream of changes: the promise of the modes upsert and changelog, one change at a time.

`counting` are the changes that a checkpoint takes when it is written, `decide` what becomes of them, and `apply` brings that
into the table. What others do in between comes before: a checkpoint is as if it were written when it is committed. Rows are told
apart by the number that each change has.

A change is late, and nothing, when its sequence value is below the greatest of the rows and the tombstone that its key has
before the checkpoint, when that is written or when it is committed. Of the others, in both modes the last of a key decides, last by guard and then by source order.
    upsert     -U is nothing, +I and +U replace all rows of the key, -D deletes them.
    changelog  +I and +U add a row; where there is a -U or -D among the changes, all older rows of the key go. What this is was
               decided when the checkpoint was written: its last change is late, or nothing of the key is (`compared`).

A value that a change leaves out is that of the change of the key before it, else that of its row; after a removal, and
where there is no row, there is none: then it is null, or the change is as a removal, as `refuses` says.

A truncate takes all rows out of keys whose greatest sequence value, where there is one, is below it; changes below it are late.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamlake.records import RowKind

Key = tuple[Any, ...]
Values = dict[str, Any]

_REMOVES = (RowKind.UPDATE_BEFORE, RowKind.DELETE)


@dataclass(frozen=True)
class Row:
    """A row of the table. `sequence_value` None: it has none to compare."""

    number: int
    key: Key
    sequence_value: int | None
    values: Values


@dataclass(frozen=True)
class Change:
    """One change of the stream; `row` is what it brings in, or what it says of the row that goes."""

    kind: RowKind
    row: Row
    unset: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Decision:
    """What becomes of one key."""

    key: Key
    deletes_old: bool
    row: Row | None
    sequence_value: int | None


def key_of(values: Iterable[Any]) -> Key:
    """The key as it compares: null equals null, NaN equals NaN, -0.0 equals 0.0."""
    return tuple(map(_comparable, values))


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


@dataclass
class ChangeModel:
    """`sequenced`: sequence values decide inside a checkpoint; `remembers`: and across checkpoints. `refuses`: a change that leaves
    out a value which is nowhere is refused. `indexed`: the index alone knows the sequence values of rows."""

    mode: str
    sequenced: bool
    remembers: bool
    refuses: bool = False
    indexed: bool = False
    rows: dict[Key, list[Row]] = field(default_factory=dict)
    tombstones: dict[Key, int] = field(default_factory=dict)
    floors: dict[Key, int] = field(default_factory=dict)
    truncated: int = -1
    untold: int = -1
    _saved: dict[int, tuple[dict[Key, list[Row]], dict[Key, int], int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._bound = -1

    def live(self) -> list[Row]:
        return [row for rows in self.rows.values() for row in rows]

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def counting(self, changes: Sequence[Change], truncates: Iterable[int] = ()) -> list[Change]:
        """The changes that are not late when a checkpoint with them and these truncates is written."""
        bound = max(max(truncates, default=-1), self.truncated)
        return [change for change in changes if not self._is_late(change, bound)]

    def compared(self, decisions: Iterable[Decision]) -> list[Decision]:
        """What is left of decisions, now that others have committed."""
        known = [(each, self._known_guard(each.key)) for each in decisions]
        return [
            each
            for each, sequence_value in known
            if None in (sequence_value, each.sequence_value) or each.sequence_value >= sequence_value
        ]

    def _is_late(self, change: Change, bound: int) -> bool:
        sequence_value = change.row.sequence_value if self.sequenced else None
        known = self._known_guard(change.row.key)
        return sequence_value is not None and (
            sequence_value < bound or (known is not None and sequence_value < known)
        )

    def decide(self, changes: Sequence[Change], truncates: Iterable[int] = ()) -> list[Decision]:
        """What a checkpoint with these changes, in source order, and with truncates at any place among them, will do."""
        bound = max(truncates, default=-1)
        self._bound = max(bound, self.truncated)
        groups: dict[Key, list[tuple[int, int, Change]]] = {}
        for at, change in enumerate(changes):
            if self.mode == "upsert" and change.kind == RowKind.UPDATE_BEFORE:
                continue
            if self._is_late(change, self._bound):
                continue
            sequence_value = change.row.sequence_value if self.sequenced else None
            groups.setdefault(change.row.key, []).append((sequence_value or 0, at, change))
        decisions = []
        for key, group in groups.items():
            ordered = [change for _, _, change in sorted(group, key=lambda each: each[:2])]
            last = ordered[-1]
            sequence_value = last.row.sequence_value if self.sequenced else None
            removes = any(change.kind in _REMOVES for _, _, change in group)
            row = None if last.kind in _REMOVES else self._whole(key, ordered)
            decisions.append(Decision(key, removes or self.mode == "upsert", row, sequence_value))
        if bound > self.truncated:
            for key, rows in self.rows.items():
                known = self._known_guard(key)
                if rows and key not in groups and (known is None or known < bound):
                    decisions.append(Decision(key, True, None, bound))
        return decisions

    def _whole(self, key: Key, ordered: Sequence[Change]) -> Row | None:
        """The row of the last change, with what is left out taken from those before it and the row that there is."""
        rows = self.rows.get(key)
        known: Values = dict(rows[-1].values) if rows else {}
        for change in ordered:
            if change.kind in _REMOVES:
                known = {}
                continue
            left_out = {name: known[name] for name in change.unset if name in known}
            told = {name: value for name, value in change.row.values.items() if name not in change.unset}
            known = {**told, **left_out}
        row = ordered[-1].row
        if self.refuses and set(row.values) - set(known):
            return None
        return replace(row, values={name: known.get(name) for name in row.values})

    def apply(self, decisions: Iterable[Decision]) -> None:
        """Commit what was decided last."""
        self.truncated = self._bound
        for each in decisions:
            if each.deletes_old:
                self.rows.pop(each.key, None)
                self.tombstones.pop(each.key, None)
            if each.row is not None:
                self.rows.setdefault(each.key, []).append(each.row)
            elif each.sequence_value is not None and self.remembers:
                self.tombstones[each.key] = each.sequence_value

    def append(self, rows: Iterable[Row]) -> None:
        """Others add rows."""
        for row in rows:
            self.rows.setdefault(row.key, []).append(row)

    def delete(self, numbers: Iterable[int]) -> None:
        """Others delete rows. What is older than such a row does not bring its key back."""
        gone = set(numbers)
        for key, rows in list(self.rows.items()):
            known = [
                row.sequence_value for row in rows if row.number in gone and row.sequence_value is not None
            ]
            if known and self.remembers:
                self.tombstones[key] = max([*known, self.tombstones.get(key, known[0])])
            kept = [row for row in rows if row.number not in gone]
            if kept:
                self.rows[key] = kept
            else:
                del self.rows[key]

    def forget(self) -> None:
        """The index is gone, and the tombstones with it. Whether they are still remembered is left open, so such changes are
        taken out of the stream (`is_told`)."""
        for key, sequence_value in self.tombstones.items():
            self._lower_bound(key, [sequence_value])
        sequence_values = (
            [row.sequence_value for row in self.live() if row.sequence_value is not None]
            if self.indexed
            else []
        )
        self.untold, self.truncated = max([self.untold, self.truncated, *sequence_values]), -1

    def is_told(self, change: Change) -> bool:
        """Whether it is certain what becomes of a change."""
        sequence_value = change.row.sequence_value
        if sequence_value is not None and sequence_value < self.untold:
            return False
        return (
            sequence_value is None
            or not self.remembers
            or sequence_value >= self.floors.get(change.row.key, sequence_value)
        )

    def save(self, snapshot_id: int) -> None:
        """Remember the rows as those of a snapshot."""
        rows = {key: list(rows) for key, rows in self.rows.items()}
        self._saved[snapshot_id] = (rows, dict(self.tombstones), self.truncated)

    def restore(self, snapshot_id: int) -> None:
        """Others roll the table back."""
        rows, tombstones, self.truncated = self._saved[snapshot_id]
        self.tombstones = dict(tombstones)
        self.rows = {key: list(each) for key, each in rows.items()}

    def _lower_bound(self, key: Key, sequence_values: Iterable[int | None]) -> None:
        for sequence_value in sequence_values:
            if sequence_value is not None:
                self.floors[key] = max(sequence_value, self.floors.get(key, sequence_value))

    def _known_guard(self, key: Key) -> int | None:
        if not self.remembers:
            return None
        known: Mapping[Key, int] = self.tombstones
        sequence_values = [
            row.sequence_value for row in self.rows.get(key, ()) if row.sequence_value is not None
        ]
        sequence_values += [known[key]] if key in known else []
        return max(sequence_values, default=None)
