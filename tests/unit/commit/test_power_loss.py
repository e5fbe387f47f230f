"""The power goes at any step of a checkpoint: with fsync nothing is lost, and without it the same schedules lose rows.

The random schedules are in test_protocol_model.py; here is each step once, and the proof that the storage forgets.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from streamlake import clock
from tests.helpers.memory_files import Died, Fault
from tests.helpers.protocol_world import World
from tests.helpers.upsert_world import UpsertWorld

STEPS = range(14)


@pytest.fixture(autouse=True)
def _no_waits() -> Iterator[None]:
    with patch.object(clock, "sleep", lambda seconds: None):
        yield


def cut(world: World, step: int, seed: int) -> None:
    """Checkpoints, a loss of power at one step of another one, and what is to come after it."""
    for _ in range(3):
        world.checkpoint(2)
    world.checkpoint(2, fault=Fault(step, "die-after"))
    world.lose_power(random.Random(seed))
    world.check()
    world.finish()


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("service", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_lost_at_any_step(step: int, service: bool, ahead: int) -> None:
    for seed in range(3):
        cut(World(service=service, ahead=ahead), step, seed)


@pytest.mark.parametrize("step", STEPS)
def test_nothing_of_an_upsert_is_lost_at_any_step(step: int) -> None:
    cut(UpsertWorld(), step, step)


@pytest.mark.parametrize("world_class", [World, UpsertWorld])
def test_without_fsync_the_same_losses_take_rows(world_class: type[World]) -> None:
    lost = 0
    for step in STEPS[::3]:
        for seed in range(4):
            try:
                cut(world_class(fsync=False), step, seed)
            except (Exception, Died):
                lost += 1
    assert lost > 5, "a storage that forgets nothing proves nothing"


@pytest.mark.parametrize("ahead", [1, 3])
def test_what_sparks_logs_have_lost_is_refused_where_it_was_committed(ahead: int) -> None:
    """Spark plans the checkpoint anew, with other rows: taking it for the one of before would leave them out."""
    world = World(ahead=ahead)
    for _ in range(4):
        world.checkpoint(3)
    world.catch_up()
    world.lose_power(random.Random(1), offsets=1)
    world.directory.plan(5)
    assert world.checkpoint(5) == "refused", "by a LineageError: the world takes no other"
    world.check()


def test_a_commit_log_that_has_lost_its_end_is_a_replay() -> None:
    world = World()
    for _ in range(4):
        world.checkpoint(3)
    world.lose_power(random.Random(1), commits=2)
    assert world.checkpoint(3) == "skipped"
    assert world.checkpoint(3) == "committed"
    world.check()
