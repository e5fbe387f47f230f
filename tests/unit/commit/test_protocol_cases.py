"""Schedules that once broke the protocol or its model, as the model has shrunk them. See test_protocol_model.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from unittest.mock import patch

import pytest

from streamlake import clock
from tests.helpers.memory_files import Fault
from tests.helpers.protocol_world import World, due
from tests.helpers.upsert_world import UpsertWorld

CASES: list[Callable[[World], object]] = []


def case(function: Callable[[World], object]) -> Callable[[World], object]:
    CASES.append(function)
    return function


@case
def rolled_back_while_the_driver_cleans_up(world: World) -> None:
    """The checkpoint ends well, the next one does not."""
    world.checkpoint(1)
    world.overtaken(1, 4, "roll back")
    assert world.checkpoint(2) in ("refused", "staged", "committed")


@case
def rolled_back_to_a_history_that_has_lost_its_beginning(world: World) -> None:
    """The checkpoint has expired, and so has the beginning; the head is older than the property says."""
    world.append_foreign()
    world.append_foreign()
    world.checkpoint(3)
    world.catch_up()
    world.roll_back(1)
    world.expire(1)
    world.restart()
    assert world.checkpoint(3) == "refused"


@case
def rolled_back_and_expired_before_spark_heard_of_the_commit(world: World) -> None:
    """The one thing that nobody can know, see `blind`: the history is merely short."""
    world.append_foreign()
    world.checkpoint(1, fault=Fault(4, "die-after"))
    world.roll_back(1)
    world.append_foreign()
    world.expire(1)
    world.checkpoint(0)


@case
def overtaken_while_it_starts(world: World) -> None:
    """The successor's note about the directory stays: the driver that stood still writes none."""
    world.overtaken(0, 0, "successor twice")
    world.restart()
    assert world.checkpoint(0) in ("empty", "staged", "committed")


@case
def the_note_about_an_empty_checkpoint_fails_when_it_is_staged(world: World) -> None:
    """Tried again it is passed over, and withdrawn: nothing is missing then."""
    for at in range(8):
        world.restart()
        for _ in range(2):
            world.checkpoint(0)
        world.checkpoint(0, 1, Fault(at, "fail-before"))
        world.checkpoint(0)


@case
def a_copy_of_the_directory_goes_on_beside_it(world: World) -> None:
    """Both stage a checkpoint of the same id: neither replaces the other's, nor takes it for its own."""
    world.copy_directory()
    world.checkpoint(0)
    world.switch_directory(1)
    world.checkpoint(0)
    world.checkpoint(3)
    world.switch_directory(0)
    world.checkpoint(2)
    world.check()
    world.switch_directory(1)
    world.restart()
    world.checkpoint(4)
    world.check()


@case
def dropped_and_created_while_a_driver_runs(world: World) -> None:
    world.checkpoint(1)
    world.recreate()
    world.checkpoint(1)


@case
def dropped_and_created_before_an_empty_checkpoint(world: World) -> None:
    """Ahead of its commits, a stream without rows does not look at the table; the next commit does."""
    world.checkpoint(1)
    world.catch_up()
    world.recreate()
    world.checkpoint(0)
    world.catch_up()
    world.checkpoint(1)
    world.catch_up()
    assert world.checkpoint(1) == "refused"


@case
def another_table_was_written_from_the_directory(world: World) -> None:
    """Nobody goes on behind the hole; where nothing was read meanwhile, there is none."""
    world.checkpoint(1)
    world.catch_up()
    world.elsewhere(0)
    assert world.checkpoint(1) in ("committed", "staged")
    world.catch_up()
    world.elsewhere(1)
    assert world.checkpoint(1) == "refused"
    world.restart()
    assert world.checkpoint(1) == "refused"


@case
def another_table_was_written_from_the_directory_first(world: World) -> None:
    world.elsewhere(2)
    assert world.checkpoint(1) == "refused"


@case
def staged_by_a_copy_of_the_directory_that_went_on_differently(world: World) -> None:
    """Of the other copy's checkpoint nothing may come in once this one has ended it without rows. Where the other one may
    have taken it for done, this one has to refuse."""
    world.checkpoint(3)
    world.catch_up()
    world.copy_directory()
    world.checkpoint(4, fault=Fault(1, "die-after"))
    world.switch_directory(1)
    ended = world.checkpoint(0)
    world.restart()
    if world.ahead > 1:
        assert ended == "refused"
        return
    assert world.checkpoint(2) in ("committed", "staged")
    world.restart()
    assert world.checkpoint(2) in ("committed", "staged")
    assert world.live().keys() >= due(world.directory.ends[-2])


@case
def the_answer_is_lost_and_the_swap_arrives_after_the_successor_has_looked(world: World) -> None:
    world.checkpoint(2)
    world.checkpoint(2, fault=Fault(3, "late"))
    world.restart()
    world.overtaken(2, 1, "append")
    world.arrive()
    world.checkpoint(2)


@case
def an_empty_checkpoint_is_tried_again_by_the_query_that_failed_to_commit_it(world: World) -> None:
    """Every third empty one in a row is staged; the second attempt counts anew, and must not take the first for another's."""
    faults = [(1, "die"), (0, "die"), (0, "die"), (0, "die"), (0, "die"), (1, "fail-after"), (1, "die")]
    for at, kind in faults:
        world.checkpoint(0, fault=Fault(at, "die-before" if kind == "die" else kind))
    world.restart()
    world.checkpoint(0, fault=Fault(0, "die-before"))


@case
def it_dies_in_the_recovery_of_the_recovery(world: World) -> None:
    world.checkpoint(2)
    for at in range(6):
        world.checkpoint(2, fault=Fault(at, "die-after"))
    for at in range(6):
        world.checkpoint(2, fault=Fault(at, "die-before"))
    world.checkpoint(2)


@case
def a_copy_meets_what_the_other_has_staged_ahead_of_its_commit(world: World) -> None:
    """The other's stream takes it for done, so it is neither replaced nor forgotten."""
    world.copy_directory()
    world.checkpoint(1)
    world.switch_directory(1)
    world.checkpoint(0)


@case
def the_recovery_of_several_fails_and_the_same_run_tries_again(world: World) -> None:
    """What is left of the staged ones is not forgotten."""
    for _ in range(3):
        world.checkpoint(2)
    world.restart()
    for at in range(4, 12):
        world.checkpoint(1, fault=Fault(at, "late"))
    world.checkpoint(2)
    world.catch_up()


@case
def a_withdrawn_checkpoint_comes_back_with_the_power(world: World) -> None:
    """Spark has lost its plan, plans another one without rows, and a later loss of power undoes that the staged one was
    removed."""
    world.checkpoint(1, 1, Fault(2, "die-after"))
    world.lose_power(Random(0), offsets=1)
    world.checkpoint(0)
    world.checkpoint(0)
    world.checkpoint(0, 1, Fault(0, "die-before"))
    world.lose_power(Random(0))
    world.checkpoint(0)
    assert not world.live()
    world.checkpoint(4)


def of_upserts_its_rows_are_replaced_before_it_hears_of_its_commit(world: World) -> None:
    """What it has committed is no longer live, and not lost."""
    world.checkpoint(5)
    for at in range(10):
        world.overtaken(1, at, "successor twice")


def of_upserts_a_checkpoint_that_only_deletes_is_rolled_back(world: World) -> None:
    """No row is missing then; one has come back."""
    world.checkpoint(11)
    world.checkpoint(1)
    world.roll_back(1)
    world.check()
    assert world.checkpoint(1) == "refused"


@pytest.fixture(autouse=True)
def _no_waits() -> Iterator[None]:
    with patch.object(clock, "sleep", lambda seconds: None):
        yield


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("service", [False, True])
@pytest.mark.parametrize("schedule", CASES, ids=lambda each: each.__name__)
def test_case(schedule: Callable[[World], object], service: bool, ahead: int) -> None:
    world = World(service=service, ahead=ahead)
    schedule(world)
    world.check()
    world.finish()


@pytest.mark.parametrize(
    "schedule",
    [
        of_upserts_its_rows_are_replaced_before_it_hears_of_its_commit,
        of_upserts_a_checkpoint_that_only_deletes_is_rolled_back,
    ],
    ids=lambda each: each.__name__,
)
def test_case_of_upserts(schedule: Callable[[World], object]) -> None:
    world = UpsertWorld()
    schedule(world)
    world.check()
    world.finish()
