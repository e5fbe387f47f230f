"""What the processes of a soak share: names, and what the table must hold after so many checkpoints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamlake import load_table
from streamlake.catalog.open import open_table
from streamlake.errors import MissingFileError
from tests.crash.change_log import Row, changes
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


@dataclass
class Model:
    """The rows of the checkpoints up to `checkpoint`, which only grows, as does `file`, the last one that they cover."""

    mode: str
    checkpoint: int = -1
    file: int = -1
    rows: dict[int, Row] = field(default_factory=dict)

    def advance(self, checkpoint: int, file: int) -> None:
        assert (checkpoint, file) >= (self.checkpoint, self.file), (
            f"the table went back from checkpoint {self.checkpoint} to {checkpoint}"
        )
        for number in range(self.file + 1, file + 1):
            for change in changes(number, self.mode):
                if change.op == "-D":
                    self.rows.pop(change.id, None)
                else:
                    self.rows[change.id] = (change.id, change.part, change.payload)
        self.checkpoint, self.file = checkpoint, file


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


def last_file(home: Path, checkpoint: int) -> int:
    """The last file of a checkpoint, by Spark's offset log: a driver that died between the source's log and that one leaves
    its file to the next checkpoint, which then has two."""
    if checkpoint < 0:
        return -1
    offsets = (home / "checkpoint" / "offsets" / str(checkpoint)).read_text().splitlines()
    return int(json.loads(offsets[-1])["logOffset"])


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
    model.advance(checkpoint, last_file(home, checkpoint))
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
