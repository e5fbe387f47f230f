"""The crash matrix, a pairwise subset of it: whatever dies and when, the stream ends with the table that it should.

`python -m tests.crash.matrix` runs all of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from streamlake.failpoints import REGISTERED
from tests.crash import schedules
from tests.crash.change_log import PARTS, FileInput, KafkaInput, TableInput
from tests.crash.schedule_run import ScheduleRun
from tests.crash.schedules import HOWS, INPUTS, MODES, PHASES, VERSIONS, Schedule
from tests.helpers.readers import Reader

SCHEDULES = schedules.pairwise()


@pytest.mark.crash
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda each: each.name)
def test_the_stream_ends_with_the_table_that_it_should(
    schedule: Schedule, tmp_path: Path, peer_reader: Reader, request: pytest.FixtureRequest
) -> None:
    source: FileInput | KafkaInput | TableInput = FileInput(tmp_path / "landing", schedule.mode)
    if schedule.input == "table":
        source = TableInput(tmp_path / "upstream", schedule.mode)
    if schedule.input == "kafka":
        broker = request.getfixturevalue("kafka_broker")
        source = KafkaInput(
            broker, broker.create_topic(partitions=PARTS), schedule.mode, damaged=schedule.is_damaged
        )
    run = ScheduleRun(schedule, tmp_path, source)
    run.run()
    run.check_by(peer_reader)
    assert all(met.came for met in run.met), [str(met.death) for met in run.met if not met.came]


def test_every_failpoint_has_its_place_in_the_matrix() -> None:
    placed = [name for names in PHASES.values() for name in names]
    assert sorted(placed) == sorted(REGISTERED)


def test_the_subset_meets_every_failpoint_and_every_pair() -> None:
    deaths = [(schedule, death) for schedule in SCHEDULES for death in schedule.deaths]
    assert {death.failpoint for _, death in deaths} == set(REGISTERED)
    phase_of = {name: phase for phase, names in PHASES.items() for name in names}
    for axis, values in (("mode", MODES), ("version", VERSIONS), ("input", INPUTS)):
        met = {(getattr(schedule, axis), phase_of[death.failpoint]) for schedule, death in deaths}
        possible = {(value, phase) for value in values for phase in PHASES} - {("file", "source")}
        if axis == "mode":
            possible -= {(mode, "index") for mode in set(MODES) - set(schedules.INDEXED)}
        assert possible <= met, sorted(possible - met)
    for pair, count in ((("mode", "version"), 8), (("mode", "input"), 12), (("version", "input"), 6)):
        assert len({tuple(getattr(each, axis) for axis in pair) for each in SCHEDULES}) == count
    assert {death.how for _, death in deaths} == set(HOWS)
    assert any(death.who == schedules.WORKER or death.worker for _, death in deaths)
    assert any(death.who == schedules.TASK for _, death in deaths)


def test_the_whole_matrix_kills_everywhere_and_is_the_same_for_a_seed() -> None:
    whole = schedules.whole_matrix(7)
    assert whole == schedules.whole_matrix(7)
    assert whole != schedules.whole_matrix(8)
    for mode in MODES:
        for version in VERSIONS:
            for source in INPUTS:
                mine = [
                    each for each in whole if (each.mode, each.version, each.input) == (mode, version, source)
                ]
                killed = {death.failpoint for each in mine for death in each.deaths}
                assert killed - {""} == {name for name in REGISTERED if schedules.applies(name, mode, source)}
