"""What a Committable keeps beside its files, as typed values, and its form in the staged checkpoint's JSON.

Place in the flow: written with the Committable, and read by the driver that finds it. Invariant: what an
earlier version has staged is read, and a value that is written again is written as it was, with what a later
version has added to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamlake.index.runs.run_writer import RunRef, run_to_json
from streamlake.spec.partitioning.partition_spec import PartitionSpec, spec_from_json, spec_to_json

_COUNTERS = "counters"
_RUNS, _REWRITTEN, _TRUNCATED = "index-runs", "rewritten", "truncated-below"
_MESSAGE_KEY, _TOOK_MOVED = "message-key", "took-moved"
_STAGED_AT, _SPECS = "staged-at-sequence-number", "specs"
_FOLLOWS = "follows"
_DONE, _FAILED = "done", "failed"
_KNOWN = {
    _COUNTERS,
    _RUNS,
    _REWRITTEN,
    _TRUNCATED,
    _MESSAGE_KEY,
    _TOOK_MOVED,
    _STAGED_AT,
    _SPECS,
    _FOLLOWS,
    _DONE,
    _FAILED,
}


@dataclass(frozen=True)
class TableThen:
    """The table at staging: its last sequence number, which that of the checkpoint's commit is after, and the
    partition specs of the checkpoint's manifests.
    """

    sequence_number: int = 0
    specs: tuple[PartitionSpec, ...] = ()


@dataclass(frozen=True)
class StagedIndex:
    """The checkpoint's part in the key index: `runs` have its own entries, in the buckets of `message_key`
    (see Bucketing), `rewritten` are the paths of its data files that copy-on-write made of older ones.
    `truncated_below` is the source position of its last truncate. `took_moved`: rows whose key changed took
    values over from rows of the new key.
    """

    runs: tuple[RunRef, ...]
    rewritten: tuple[str, ...]
    truncated_below: int | str | None = None
    message_key: str = ""
    took_moved: bool = False


@dataclass(frozen=True)
class StagedReplay:
    """A replay of rejects: see ReplayPlan."""

    done: tuple[str, ...]
    failed: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Extra:
    """Each part where there is one. `counters` are for the receipt; `follows` is the checkpoint that is
    committed before this one, where a run writes ahead. `unknown` is what a later version has added.
    """

    counters: Mapping[str, int] = field(default_factory=dict)
    index: StagedIndex | None = None
    table: TableThen | None = None
    follows: int | None = None
    replay: StagedReplay | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def truncated_below(self) -> int | str | None:
        """The source position of the checkpoint's last truncate, where the index knows of it."""
        return None if self.index is None else self.index.truncated_below


NOTHING = Extra()


def extra_to_json(extra: Extra) -> dict[str, Any]:
    """The JSON object of these values."""
    obj: dict[str, Any] = {_COUNTERS: dict(extra.counters)} if extra.counters else {}
    if (index := extra.index) is not None:
        obj[_RUNS] = [run_to_json(ref) for ref in index.runs]
        obj[_REWRITTEN] = list(index.rewritten)
        obj[_TRUNCATED] = index.truncated_below
        obj[_MESSAGE_KEY] = index.message_key
        obj[_TOOK_MOVED] = index.took_moved
    if (table := extra.table) is not None:
        obj[_STAGED_AT] = table.sequence_number
        obj[_SPECS] = [spec_to_json(spec) for spec in table.specs]
    if extra.follows is not None:
        obj[_FOLLOWS] = extra.follows
    if (replay := extra.replay) is not None:
        obj[_DONE] = list(replay.done)
        obj[_FAILED] = {place: list(reason) for place, reason in replay.failed.items()}
    return {**obj, **extra.unknown}


def extra_from_json(obj: Mapping[str, Any]) -> Extra:
    """The inverse of `extra_to_json`. Raises KeyError, TypeError, ValueError and AttributeError for an object
    that is damaged.
    """
    index = table = replay = None
    if _RUNS in obj:
        index = StagedIndex(
            tuple(RunRef(**ref) for ref in obj[_RUNS]),
            tuple(obj[_REWRITTEN]),
            obj.get(_TRUNCATED),
            obj.get(_MESSAGE_KEY, ""),
            bool(obj.get(_TOOK_MOVED)),
        )
    if _STAGED_AT in obj or _SPECS in obj:
        table = TableThen(obj.get(_STAGED_AT, 0), tuple(map(spec_from_json, obj.get(_SPECS, ()))))
    if _DONE in obj:
        failed = {str(place): (str(kind), str(text)) for place, (kind, text) in obj[_FAILED].items()}
        replay = StagedReplay(tuple(obj[_DONE]), failed)
    follows = obj.get(_FOLLOWS)
    unknown = {name: value for name, value in obj.items() if name not in _KNOWN}
    return Extra(
        obj.get(_COUNTERS, {}), index, table, None if follows is None else int(follows), replay, unknown
    )
