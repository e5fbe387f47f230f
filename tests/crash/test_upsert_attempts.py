"""Upsert tasks that are killed half-way and run again: only the files of the attempts that won are in the table.

Slow duplicates need executors on several hosts; see the attempts beside each other in the unit tests of the pipeline.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import upsert_stream
from tests.crash.upsert_stream import Deletes, check_table_of, referenced_files, written_files
from tests.helpers.spark import run_driver

pytestmark = pytest.mark.crash
DRIVER = Path(__file__).with_name("upsert_attempts_driver.py")
FILES = 3


@pytest.mark.parametrize(
    "deletes",
    [
        Deletes("position", 3),
        pytest.param(Deletes("position", 2), marks=pytest.mark.soak),
        pytest.param(Deletes("copy-on-write", 2), marks=pytest.mark.soak),
        pytest.param(Deletes("equality", 2), marks=pytest.mark.soak),
    ],
    ids=lambda value: value.text,
)
def test_files_of_killed_attempts_are_not_in_the_table(deletes: Deletes, tmp_path: Path) -> None:
    upsert_stream.land(tmp_path, files=FILES)
    run_driver(DRIVER, tmp_path, deletes.text, home=tmp_path / "driver")
    check_table_of(tmp_path, FILES)
    harmed = {path.name for path in (tmp_path / "harmed").iterdir()}
    assert harmed == {f"{checkpoint}-{task}" for checkpoint in (0, 1) for task in range(upsert_stream.TASKS)}
    assert len(written_files(tmp_path) - referenced_files(tmp_path)) >= len(harmed), (
        "the killed attempts had written files, which nobody could remove"
    )
