"""What the processes of a soak share: names, and what the table must hold after so many checkpoints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.checkpoint.offset_entries import entry_from_text, entry_path
from streamlake.errors import MissingFileError, TableNotFoundError
from streamlake.pipeline.runs.rejected.rejects_table import rejects_name
from streamlake.source.offsets import SourceOffsets
from tests.crash.change_log import DAMAGED_AT, PARTS, ROWS, Row, changes
from tests.helpers.invariants import check_table
from tests.helpers.spark import ICE_CATALOG

TABLE = "db.soak"
PIPELINE = "soak"
LANDING, STARTED, STOP, NEIGHBOUR_LOG = "landing", "started", "stop", "neighbour.jsonl"
COLUMNS = ("id", "part", "payload")
ATTEMPTS = 5


def table_location(home: Path) -> Path:
    """Where the table of a soak lies: in the warehouse of the catalog that the neighbour uses."""
    return home.joinpath(ICE_CATALOG, *TABLE.split("."))


Taken = tuple[int, ...]
"""How many changes of each part, in their order."""
_PER_PART = ROWS // PARTS
_WITH_DAMAGED = _PER_PART + 1


@dataclass
class Model:
    """The rows of the checkpoints up to `checkpoint`, which only grows, as does `taken`, what they cover. With `rejects`
    the stream comes from Kafka, and each part of an input has a damaged record."""

    mode: str
    rejects: bool = False
    checkpoint: int = -1
    taken: Taken = (0,) * PARTS
    rows: dict[int, Row] = field(default_factory=dict)

    def advance(self, checkpoint: int, taken: Taken) -> None:
        grows = all(now >= before for now, before in zip(taken, self.taken, strict=True))
        assert checkpoint >= self.checkpoint and grows, (  # noqa: PT018
            f"the table went back from checkpoint {self.checkpoint} to {checkpoint}"
        )
        # A key is of one part, so the order of the parts is no matter.
        for part, (begin, end) in enumerate(zip(self.taken, taken, strict=True)):
            for number in range(begin // _PER_PART, -(-end // _PER_PART)):
                of_part = [change for change in changes(number, self.mode) if change.part == part]
                first = number * _PER_PART
                for change in of_part[max(begin - first, 0) : max(end - first, 0)]:
                    if change.op == "-D":
                        self.rows.pop(change.id, None)
                    else:
                        self.rows[change.id] = (change.id, change.part, change.payload)
        self.checkpoint, self.taken = checkpoint, taken


@dataclass(frozen=True)
class Difference:
    """Rows that a table lacks, and rows that it has too often or should not have."""

    missing: Counter[Row]
    extra: Counter[Row]

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra)


def last_checkpoint(properties: Mapping[str, str]) -> int:
    """The checkpoint that the table's property tells, -1 before the first one."""
    text = properties.get(f"streamlake.pipeline.{PIPELINE}")
    return -1 if text is None else int(json.loads(text)["checkpoint-id"])


def taken_by(home: Path, checkpoint: int, *, rejects: bool) -> Taken:
    """What the checkpoints up to this one cover, by the logs of the checkpoint directory."""
    if checkpoint < 0:
        return (0,) * PARTS
    if not rejects:
        return (_PER_PART * (_last_file(home, checkpoint) + 1),) * PARTS
    return tuple(offset - len(_damaged(offset)) for offset in _offsets(home, checkpoint))


def _last_file(home: Path, checkpoint: int) -> int:
    """The last file of a checkpoint, by Spark's offset log: a driver that died between the source's log and that one leaves
    its file to the next checkpoint, which then has two."""
    offsets = (home / "checkpoint" / "offsets" / str(checkpoint)).read_text().splitlines()
    return int(json.loads(offsets[-1])["logOffset"])


def _offsets(home: Path, checkpoint: int) -> list[int]:
    """The next offset of each part after a checkpoint, by our own log."""
    path = home / "checkpoint" / entry_path(checkpoint)
    found = SourceOffsets.from_json(json.loads(entry_from_text(path.read_text(), str(path))))
    ends = {partition: offset for (_, partition), offset in found.positions.items()}
    return [ends.get(part, 0) for part in range(PARTS)]


def _damaged(until: int) -> list[int]:
    """Offsets of a part's damaged records before `until`."""
    return list(range(DAMAGED_AT, until, _WITH_DAMAGED))


def check_rejects(home: Path, model: Model, found: list[tuple[int, int]], *, done: bool) -> None:
    """Rejects that were read before the table was compared: each record once, none before its checkpoint, and in the end
    (`done`) all of them."""
    assert len(found) == len(set(found)), "a record is rejected twice"
    offsets = _offsets(home, model.checkpoint)
    due = {(part, offset) for part in range(PARTS) for offset in _damaged(offsets[part])}
    early = set(found) - due
    assert not early, f"rejects of records that are not committed, or not damaged: {sorted(early)[:5]}"
    missing = due - set(found)
    assert not done or not missing, f"{len(missing)} rejects are missing, such as {sorted(missing)[:5]}"


def rejected(home: Path) -> list[tuple[int, int]]:
    """Partition and offset of each record in the rejects table."""
    location = rejects_name(str(table_location(home)))
    try:
        found = load_table(location).scan(columns=["partition", "offset"]).to_arrow()
    except TableNotFoundError:
        return []
    return list(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def check(home: Path, model: Model, log: Path) -> Difference:
    """Compare the table with the model at the table's own checkpoint, and with what the neighbour says. Others may go on
    writing meanwhile; files that expire while they are read are read again from the then newest snapshot."""
    for attempt in range(ATTEMPTS):
        try:
            return _check(home, model, log)
        except (MissingFileError, AssertionError) as error:
            if attempt == ATTEMPTS - 1 or not _is_missing(error):
                raise
    raise AssertionError("unreachable")


def _is_missing(error: BaseException) -> bool:
    return isinstance(error, MissingFileError) or "is not there" in str(error)


def _check(home: Path, model: Model, log: Path) -> Difference:
    before = _appended(log)
    loaded = load_table(str(table_location(home)))
    checkpoint = last_checkpoint(loaded.properties)
    found = loaded.scan(columns=COLUMNS).to_arrow()
    check_table(open_table(str(table_location(home))))
    after = _appended(log)
    model.advance(checkpoint, taken_by(home, checkpoint, rejects=model.rejects))
    rows = Counter(zip(*(found.column(name).to_pylist() for name in COLUMNS), strict=True))
    own = Counter({row: count for row, count in rows.items() if row[0] >= 0})
    others = rows - own
    expected = Counter(model.rows.values())
    missing, extra = expected - own, own - expected
    seen = {row[0]: count for row, count in others.items()}
    for row_id, error in before.items():
        if error is None and row_id not in seen:
            missing[row_id, -row_id % 2, "neighbour"] += 1
    for row_id, count in seen.items():
        failed = after.get(row_id) is not None and "unknown" not in str(after[row_id]).lower()
        if count > 1 or failed:
            extra[row_id, -row_id % 2, "neighbour"] += count
    return Difference(missing, extra)


def _appended(log: Path) -> dict[int, str | None]:
    """What the neighbour says of its rows: id -> error."""
    if not log.exists():
        return {}
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    return {line["id"]: line["error"] for line in lines if line["what"] == "append"}
