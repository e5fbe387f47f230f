"""Records in the rejects are no rows that a table lacks; any other record that cannot become a row is a difference."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlake import KafkaSource
from streamlake.catalog.open import open_table
from streamlake.cli.commands.verify import view
from streamlake.cli.views import task_progress as progress_view
from streamlake.cli.views.task_progress import task_progress
from streamlake.operate.verify import compared_rows
from streamlake.operate.verify.compared_rows import RecordRows, row_form
from streamlake.operate.verify.comparison import UNREADABLE, _Examples
from streamlake.operate.verify.rejected_places import NO_REJECTS, rejected_places
from streamlake.operate.verify.verification import Verification
from streamlake.source.offsets import OffsetRange
from tests.helpers.local_rejects import PARTITION, TOPIC, RejectingStream
from tests.helpers.tables import make_table
from tests.unit.decode.raw_records import raw_batch

DDL = "id long, v string"
GOOD, BAD, UNFIT = b'{"id": 1, "v": "a"}', b"{", b'{"id": "x", "v": "a"}'
RECORDS = (GOOD, BAD, GOOD, UNFIT, BAD)


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A table that a stream of RECORDS was written into: at offsets 1 and 3 are rejects, 4 is not read yet."""
    table = make_table(tmp_path / "t", DDL)
    RejectingStream(Path(table.location), [RECORDS[:4]], DDL).checkpoint(0)
    return table.location


def piece(start: int, until: int) -> OffsetRange:
    return OffsetRange(TOPIC, int(PARTITION), start, until)


def test_the_places_of_rejects(location: str) -> None:
    found = rejected_places(location, None)
    assert found.name == f"{location}__rejects"
    assert {part: at.tolist() for part, at in found.offsets.items()} == {(TOPIC, int(PARTITION)): [1, 3]}
    assert [found.within([piece(*each)]) for each in ((0, 4), (2, 4), (1, 2), (4, 9))] == [2, 1, 1, 0]
    assert found.within([OffsetRange("others", int(PARTITION), 0, 9)]) == 0
    assert rejected_places(open_table(location), None).within([piece(0, 4)]) == 2


def test_a_table_without_rejects_has_none(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", DDL)
    assert rejected_places(table.location, None).name is None
    # A table of a catalog that is not given cannot be asked for its rejects.
    table.name = "db.orders"
    assert rejected_places(table, None) is NO_REJECTS


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rejects_are_left_out_and_other_bad_records_are_differences(
    mode: str, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = raw_batch([{"value": value} for value in RECORDS], TOPIC, 0)
    monkeypatch.setattr(compared_rows, "fetch_range", lambda *given: iter([raw]))
    form = row_form(open_table(location), key=("id",) if mode == "upsert" else ())
    reader = RecordRows(form, KafkaSource("h:1", TOPIC, schema=DDL), {}, rejected_places(location, None))
    ranges = pa.RecordBatch.from_pylist(
        [{"topic": TOPIC, "partition": int(PARTITION), "start": 0, "until": 5}]
    )
    found = [row for batch in reader(iter([ranges])) for row in batch.to_pylist()]
    bad = [row for row in found if row["key"][:1] == compared_rows.UNREADABLE_KEY]
    good = [row for row in found if row not in bad]
    assert [row["at"] for row in good] == [0, 2]
    assert len(bad) == 1
    compared = _counted(form, bad[0])
    assert compared.rows[UNREADABLE] == 1
    [example] = compared.examples[UNREADABLE]
    assert example["record"] == f"{TOPIC}-{PARTITION} offset 4"
    assert "it is not valid JSON" in example["reason"]


def _counted(form: Any, row: dict[str, Any]) -> Any:
    columns = {
        "key": pa.array([row["key"]], pa.binary()),
        "source_row": pa.array([row["row"]], pa.binary()),
        "table_row": pa.array([None], pa.binary()),
        "source_rows": pa.array([1]),
        "table_rows": pa.array([0]),
    }
    [found] = _Examples(form, 5)(iter([pa.record_batch(columns)]))
    return compared_rows.pickle.loads(found.column(0)[0].as_py())


def test_a_record_that_is_neither_a_row_nor_a_reject_is_not_equal() -> None:
    found = Verification("t", "s", 1, "append", (), ("id",), 1, 1, rejected=2)
    assert found.is_equal
    assert _shown(found).count("rejects") == 1
    assert "2  of the source are in the rejects, and were not compared" in _shown(found)
    wrong = Verification(
        "t", "s", 1, "append", (), ("id",), 1, 1,
        unreadable=1, examples={UNREADABLE: [{"record": "orders-0 offset 4", "reason": "bad"}]},
    )  # fmt: skip
    assert not wrong.is_equal
    for text in (
        "NOT EQUAL",
        "1  in the source, cannot become rows, and not among the rejects",
        "orders-0 offset 4",
    ):
        assert text in _shown(wrong)


def _shown(found: Verification) -> str:
    out = io.StringIO()
    progress_view.Console(file=out, width=120).print(view(found))
    return out.getvalue()


def test_the_first_word_comes_at_once_and_then_lines_with_times(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_view, "_LINE_SECONDS", 0.02)
    with task_progress("verify: starting") as progress:
        first = capsys.readouterr().err
        progress.say("verify: comparing", _Working())
        time.sleep(0.3)
    assert first.splitlines()[0][8:] == " verify: starting"
    assert " verify: comparing: 3 of 4 tasks of this step" in capsys.readouterr().err


class _Working:
    """A session with one active stage."""

    numTasks, numCompletedTasks = 4, 3

    @property
    def sparkContext(self) -> Any:
        return self

    def statusTracker(self) -> Any:
        return self

    def getActiveStageIds(self) -> list[int]:
        return [1]

    def getStageInfo(self, stage: int) -> Any:
        return self if stage == 1 else None
