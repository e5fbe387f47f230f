"""The soak's model: the same rows whether the changes come as whole files or by offsets, with damaged records between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamlake.checkpoint.offset_entries import entry_path, entry_to_bytes
from tests.crash.change_log import DAMAGED_AT, PARTS, ROWS, KafkaInput
from tests.crash.soak_table import Model, check_rejects, taken_by

STEP = ROWS // PARTS + 1


def _log(home: Path, checkpoint: int, offsets: list[int]) -> None:
    path = home / "checkpoint" / entry_path(checkpoint)
    path.parent.mkdir(parents=True, exist_ok=True)
    ends = {str(part): offset for part, offset in enumerate(offsets)}
    path.write_bytes(entry_to_bytes(json.dumps({"offsets": {"t": ends}})))


@pytest.mark.parametrize("mode", ["append", "position"])
def test_offsets_and_files_lead_to_the_same_rows(tmp_path: Path, mode: str) -> None:
    by_files, by_offsets = Model(mode), Model(mode, rejects=True)
    by_files.advance(2, (3 * ROWS // PARTS,) * PARTS)
    for checkpoint, offsets in enumerate([[10, DAMAGED_AT], [DAMAGED_AT + 1, 150], [3 * STEP, 3 * STEP]]):
        _log(tmp_path, checkpoint, offsets)
        by_offsets.advance(checkpoint, taken_by(tmp_path, checkpoint, rejects=True))
    assert by_offsets.rows == by_files.rows
    assert by_offsets.taken == by_files.taken
    with pytest.raises(AssertionError, match="went back"):
        by_offsets.advance(3, (0,) * PARTS)


def test_rejects_are_compared(tmp_path: Path) -> None:
    model = Model("append", rejects=True, checkpoint=0)
    _log(tmp_path, 0, [STEP, DAMAGED_AT])
    check_rejects(tmp_path, model, [], done=False)
    check_rejects(tmp_path, model, [(0, DAMAGED_AT)], done=True)
    with pytest.raises(AssertionError, match="rejected twice"):
        check_rejects(tmp_path, model, [(0, DAMAGED_AT)] * 2, done=False)
    with pytest.raises(AssertionError, match="not committed"):
        check_rejects(tmp_path, model, [(1, DAMAGED_AT)], done=False)
    with pytest.raises(AssertionError, match="1 rejects are missing"):
        check_rejects(tmp_path, model, [], done=True)
    _log(tmp_path, 0, [2 * STEP, 2 * STEP])
    sent = KafkaInput(None, "t", "append", damaged=True).rejected(2)  # type: ignore[arg-type]
    check_rejects(tmp_path, model, sent, done=True)
