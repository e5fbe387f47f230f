"""The IndexState: which runs make up the key index of a table as of one snapshot.

Written before the commit, named in the snapshot's summary, read when a job starts. The file is a line with
format, length and CRC-32, then JSON. Invariant: what is read back is what was written; anything else means
that the index has to be rebuilt.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from streamlake.errors import IndexDamagedError
from streamlake.index.bucketing import Bucketing
from streamlake.index.runs.position_map_ref import PositionMapRef
from streamlake.index.runs.run_file import IndexFile
from streamlake.index.runs.run_format import ADVICE
from streamlake.index.runs.run_writer import RunRef, run_to_json

FORMAT = 1
_STEPS = 8
_LEAST_STEP_MS = 1000
_HEADER = re.compile(rb"streamlake index state (\d{1,9}), (\d{1,12}) bytes, crc32 ([0-9a-f]{8})\n")


@dataclass(frozen=True)
class IndexState:
    """The key index of the table `table_uuid`, valid for the snapshot that names it.

    - `key_ids` and `sequence_ids` are the field ids of the key and of `sequence_by`, in their order;
      `key_types` and `sequence_types` are the spec's names of their types. An index over other columns or
      types cannot be used.
    - `runs` are newest first within each of the `buckets`.
    - `base_snapshot_id` is the snapshot that the checkpoint was resolved against, None for an empty table.
      `created_ms` is in epoch milliseconds.
    - `truncated_below` is the source position of the last truncate: older changes come too late.
    - `message_key` says which bucket a key is in, see `Bucketing`. `shuffled_until` is (how often rows were
      not where it says, the first checkpoint that relies on it again).
    - `ahead_ms` is how far `created_ms` is ahead of the time by which the age of tombstones is counted, see
      `at`.
    """

    table_uuid: str
    key_ids: tuple[int, ...]
    sequence_ids: tuple[int, ...]
    buckets: int
    runs: tuple[RunRef, ...]
    created_ms: int
    base_snapshot_id: int | None
    key_types: tuple[str, ...] = ()
    sequence_types: tuple[str, ...] = ()
    truncated_below: int | str | None = None
    message_key: str = ""
    shuffled_until: tuple[int, int] = (0, 0)
    ahead_ms: int = 0
    format: int = FORMAT

    @property
    def bucketing(self) -> Bucketing:
        """How keys are assigned to buckets."""
        return Bucketing.named(self.buckets, self.message_key)

    @property
    def tombstone_ms(self) -> int:
        """The time at which tombstones of this state were written, in epoch milliseconds."""
        return self.created_ms - self.ahead_ms

    def at(self, now_ms: int, retention_ms: int) -> IndexState:
        """The index at the clock time `now_ms`.

        Clocks jump. So from one checkpoint to the next, the time of tombstones advances by at most an eighth
        of their retention, and never goes back.
        """
        step = now_ms - self.created_ms
        passed = min(max(step, 0), max(retention_ms // _STEPS, _LEAST_STEP_MS))
        return replace(self, created_ms=now_ms, ahead_ms=self.ahead_ms + step - passed)

    def runs_of(self, bucket: int) -> tuple[RunRef, ...]:
        """The runs of one bucket, newest first."""
        return tuple(run for run in self.runs if run.bucket == bucket)

    def runs_by_bucket(self) -> dict[int, tuple[RunRef, ...]]:
        """The runs of every bucket that has some, newest first."""
        grouped: dict[int, list[RunRef]] = {}
        for run in self.runs:
            grouped.setdefault(run.bucket, []).append(run)
        return {bucket: tuple(runs) for bucket, runs in sorted(grouped.items())}

    def with_runs(self, added: Iterable[RunRef], replaced: Iterable[RunRef] = ()) -> IndexState:
        """The index with `added` as the newest runs of their buckets, in this order, without `replaced`."""
        gone = {run.path for run in replaced}
        return replace(self, runs=(*added, *(run for run in self.runs if run.path not in gone)))

    def with_map(self, moved: PositionMapRef) -> IndexState:
        """The index after a compaction, whose position map says where the rows of all runs are now."""
        return replace(self, runs=tuple(replace(run, maps=(*run.maps, moved)) for run in self.runs))

    @property
    def maps(self) -> tuple[PositionMapRef, ...]:
        """The position maps that runs need."""
        return tuple(dict.fromkeys(each for run in self.runs for each in run.maps))

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The files that are needed to look keys up: runs and position maps."""
        return (*self.runs, *self.maps)

    def to_bytes(self) -> bytes:
        """The content of the state file."""
        content: dict[str, Any] = {part.name: getattr(self, part.name) for part in fields(self)}
        maps = self.maps
        if maps:  # a version that does not know them takes the state for damaged, and never for complete
            content["maps"] = [asdict(each) for each in maps]
        content["runs"] = [_run_to_json(run, maps) for run in self.runs]
        data = json.dumps(content, separators=(",", ":")).encode()
        header = f"streamlake index state {self.format}, {len(data)} bytes, crc32 {zlib.crc32(data):08x}\n"
        return header.encode() + data

    @staticmethod
    def from_bytes(data: bytes, where: str) -> IndexState:
        """The state in the file `where`.

        Raises IndexDamagedError when it is damaged or of another version.
        """
        header = _HEADER.match(data)
        if header is None:
            raise IndexDamagedError(f"{where}: this is not a state of the key index; {ADVICE}")
        version, length, crc = int(header[1]), int(header[2]), int(header[3], 16)
        if version != FORMAT:
            raise IndexDamagedError(
                f"{where}: a state of the key index in format version {version}, this is streamlake for "
                f"version {FORMAT}; {ADVICE}"
            )
        body = data[header.end() :]
        if len(body) != length or zlib.crc32(body) != crc:
            raise IndexDamagedError(f"{where}: the state of the key index is damaged or incomplete; {ADVICE}")
        try:
            content = json.loads(body)
            maps = [PositionMapRef(**each) for each in content.pop("maps", ())]
            content["runs"] = tuple(_run_from_json(run, maps) for run in content["runs"])
            content.setdefault("shuffled_until", (0, 0))
            for name in ("key_ids", "sequence_ids", "key_types", "sequence_types", "shuffled_until"):
                content[name] = tuple(content[name])
            state = IndexState(**content)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as cause:
            raise IndexDamagedError(
                f"{where}: the state of the key index cannot be read ({cause!r}); {ADVICE}"
            ) from cause
        Bucketing.named(state.buckets, state.message_key)
        if any(run.buckets != state.buckets or not 0 <= run.bucket < state.buckets for run in state.runs):
            raise IndexDamagedError(f"{where}: the state of the key index contradicts itself; {ADVICE}")
        return state


def _run_to_json(run: RunRef, maps: Sequence[PositionMapRef]) -> dict[str, Any]:
    """A run; its position maps are numbers of `maps`."""
    obj = run_to_json(run)
    return {**obj, "maps": [maps.index(each) for each in run.maps]} if run.maps else obj


def _run_from_json(obj: dict[str, Any], maps: Sequence[PositionMapRef]) -> RunRef:
    return RunRef(**{**obj, "maps": tuple(maps[number] for number in obj.get("maps", ()))})
