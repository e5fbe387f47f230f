"""Which tests of a parallel run (`pytest -n 2`) stay together, and in what order groups of them go to the processes.

A group is a file, as its tests share what is costly to make; the long ones, each with drivers or JVMs of its own, are
groups by themselves. Groups are handed out in the order of collection to whoever is free: what takes long first, so that
both processes end at about the same time.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

ALONE = ("tests/crash/", "tests/e2e/test_run.py", "tests/e2e/test_demo.py", "tests/e2e/test_jobs.py")
"""Files whose tests share no fixture that is worth it."""
TOGETHER = {
    "tests/interop/test_flink_tables.py": "flink",
    "tests/interop/test_flink_takeover.py": "flink",
    "tests/interop/test_takeover.py": "flink",
}
"""Files that share one: Flink is started once."""
LONG = (
    "tests/e2e/test_cdc_chain.py",
    *TOGETHER,
    "tests/e2e/test_sessions.py",
    "tests/crash/test_matrix.py",
    "tests/spark/test_kafka_direct.py",
    "tests/interop/test_pruning.py",
    "tests/interop/test_java_tables.py",
)
"""Files that go first among those that need a JVM, in this order, so that the last groups are short ones."""

TESTS_AHEAD = 2
"""The test that runs, and the one after it, which pytest has to know for the end of fixtures."""


def group_of(nodeid: str) -> str:
    """The group of a test."""
    file = nodeid.split("::")[0]
    return nodeid if file.startswith(ALONE) else TOGETHER.get(file, file)


def turn_of(nodeid: str) -> int:
    """The place of a test among those that need a JVM: what takes long comes first."""
    file = nodeid.split("::")[0]
    return LONG.index(file) if file in LONG else len(LONG)


class Lanes(LoadScopeScheduling):
    """Hands out the groups of `group_of`."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _reschedule(self, node: Any) -> None:
        """A process is told a group when it has one test left to run, not two: nobody else can take what it was told."""
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < TESTS_AHEAD:
            super()._reschedule(node)


def scheduler(config: pytest.Config, log: Any) -> Lanes:
    """The scheduler of a parallel run."""
    config.option.loadscopereorder = False
    return Lanes(config, log)
