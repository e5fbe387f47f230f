"""Drivers, operators, other writers and failures in any order: no row is lost or doubled, see protocol_world.

Each schedule runs the product's own recovery, staging and commits, on storage in memory. A failure is printed as the
calls that lead to it; they become a case in test_protocol_cases.py. STREAMLAKE_MODEL_EXAMPLES: how many schedules.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from streamlake import clock
from tests.helpers.memory_files import KINDS, Fault
from tests.helpers.protocol_world import MEANWHILE, World
from tests.helpers.upsert_world import UpsertWorld

EXAMPLES = int(os.environ.get("STREAMLAKE_MODEL_EXAMPLES", "400"))
STEPS = 12
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)
rows = st.integers(0, 3)
files = st.integers(1, 2)
troubles = st.builds(
    Fault, st.integers(0, 9), st.sampled_from([kind for kind in KINDS if kind != "meanwhile"])
)


class Protocol(RuleBasedStateMachine):
    """Rules are what may happen next; the world does it, and checks what its drivers tell."""

    world_class = World
    service = False
    ahead = 1

    def __init__(self) -> None:
        super().__init__()
        self._no_waits = patch.object(clock, "sleep", lambda seconds: None)
        self._no_waits.start()
        self.world = self.world_class(service=self.service, ahead=self.ahead)

    @rule(rows=rows, files=files)
    def checkpoint(self, rows: int, files: int) -> None:
        self.world.checkpoint(rows, files)

    @rule(rows=rows, fault=troubles)
    def checkpoint_in_trouble(self, rows: int, fault: Fault) -> None:
        self.world.checkpoint(rows, 1, replace(fault))

    @rule(rows=rows, first=troubles, second=troubles, start_again=st.booleans())
    def trouble_in_recovery(self, rows: int, first: Fault, second: Fault, start_again: bool) -> None:
        self.world.checkpoint(rows, 1, replace(first))
        if start_again:
            self.world.restart()
        self.world.checkpoint(rows, 1, replace(second))

    @rule(rows=rows, at=st.integers(0, 9), what=st.sampled_from(MEANWHILE))
    def checkpoint_overtaken(self, rows: int, at: int, what: str) -> None:
        self.world.overtaken(rows, at, what)

    @rule(
        rows=rows,
        at=st.integers(0, 12),
        how=st.sampled_from(["die-before", "die-after"]),
        seed=st.integers(0, 999),
    )
    def power_goes(self, rows: int, at: int, how: str, seed: int) -> None:
        self.world.checkpoint(rows, 1, Fault(at, how))
        self.world.lose_power(random.Random(seed))

    @rule(replay=st.booleans())
    def start_again(self, replay: bool) -> None:
        if replay:
            self.world.lose_last_spark_commit()
        else:
            self.world.restart()

    @rule(what=st.sampled_from(["append", "compact", "expire", "expire all but two", "arrive"]))
    def somebody_else(self, what: str) -> None:
        {
            "append": self.world.append_foreign,
            "compact": lambda: self.world.compact(0),
            "expire": lambda: self.world.expire(1),
            "expire all but two": lambda: self.world.expire(2, unreferenced=False),
            "arrive": self.world.arrive,
        }[what]()

    @rule(what=st.sampled_from(["back", "far back", "forward", "recreate"]))
    def operator_and_table(self, what: str) -> None:
        {
            "back": lambda: self.world.roll_back(1),
            "far back": lambda: self.world.roll_back(3),
            "forward": self.world.roll_forward,
            "recreate": self.world.recreate,
        }[what]()

    @rule(rows=st.integers(0, 5))
    def directory_of_another_table(self, rows: int) -> None:
        self.world.elsewhere(rows)

    @rule(what=st.sampled_from(["copy", "switch 0", "switch 1", "lose"]))
    def operator_and_directory(self, what: str) -> None:
        {
            "copy": self.world.copy_directory,
            "switch 0": lambda: self.world.switch_directory(0),
            "switch 1": lambda: self.world.switch_directory(1),
            "lose": self.world.lose_directory,
        }[what]()

    @rule()
    def catch_up(self) -> None:
        self.world.catch_up()

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        try:
            self.world.finish()
        finally:
            self._no_waits.stop()


class ServiceProtocol(Protocol):
    """The same on a catalog service, whose answers may be lost and whose requests may be late."""

    service = True


class ProtocolAhead(Protocol):
    """The same where writing runs ahead of committing, as far as it may."""

    ahead = 3


class ForgetfulProtocol(Protocol):
    """The same where losses of power take entries of Spark's own logs as well."""

    @rule(
        rows=rows,
        at=st.integers(0, 12),
        offsets=st.integers(0, 3),
        commits=st.integers(0, 3),
        seed=st.integers(0, 999),
    )
    def power_goes_and_spark_forgets(self, rows: int, at: int, offsets: int, commits: int, seed: int) -> None:
        self.world.checkpoint(rows, 1, Fault(at, "die-before"))
        self.world.lose_power(random.Random(seed), offsets=offsets, commits=commits)


class ForgetfulProtocolAhead(ForgetfulProtocol):
    ahead = 3


class UpsertProtocol(Protocol):
    """The same with row deltas by position, which have to be resolved again whenever somebody else commits."""

    world_class = UpsertWorld


def test_protocol_on_a_file_system_catalog() -> None:
    run_state_machine_as_test(Protocol, settings=SETTINGS)


def test_protocol_on_a_catalog_service() -> None:
    run_state_machine_as_test(ServiceProtocol, settings=SETTINGS)


def test_protocol_where_writing_runs_ahead() -> None:
    run_state_machine_as_test(ProtocolAhead, settings=SETTINGS)


def test_protocol_where_sparks_logs_lose_entries() -> None:
    run_state_machine_as_test(ForgetfulProtocol, settings=settings(SETTINGS, max_examples=EXAMPLES // 2))


def test_protocol_where_writing_runs_ahead_of_logs_that_lose_entries() -> None:
    run_state_machine_as_test(ForgetfulProtocolAhead, settings=settings(SETTINGS, max_examples=EXAMPLES // 2))


def test_protocol_of_upserts() -> None:
    run_state_machine_as_test(UpsertProtocol, settings=settings(SETTINGS, max_examples=EXAMPLES // 8))
