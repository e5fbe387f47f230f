"""The settings of maintenance beside a stream, from every form that a user may give them in."""

from __future__ import annotations

from typing import Any

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.maintain.background import maintenance_settings
from streamlake.maintain.background.maintenance_settings import (
    DEFAULT_SCHEDULES,
    OFF,
    MaintenanceSettings,
    Schedule,
    maintenance_options,
)
from streamlake.maintain.upkeep import ACTIONS
from streamlake.pipeline.definition.pipeline_file import parse_pipeline

FILE = "source:\n  rate: {}\nsink:\n  table: /t\ncheckpoint: /c\n"


@pytest.mark.parametrize("given", [None, False, "off", "OFF", "no", "false"])
def test_off(given: Any) -> None:
    assert MaintenanceSettings.of(given) == OFF
    assert not OFF.is_on


@pytest.mark.parametrize("given", [True, "on", {}, {"rate-limit-seconds": None}])
def test_on(given: Any) -> None:
    found = MaintenanceSettings.of(given)
    assert found.is_on
    assert found.schedules == DEFAULT_SCHEDULES
    assert "orphans" not in found.schedules


def test_options() -> None:
    found = MaintenanceSettings.of(
        {
            "actions": ["orphans", "expire"],
            "rate-limit-seconds": 0,
            "max-lag-seconds": "5",
            "lease-seconds": 7,
            "orphans.schedule.interval-second": 86_400,
            "expire.schedule.data-file-count": 3,
        }
    )
    expire = Schedule(commit_count=DEFAULT_SCHEDULES["expire"].commit_count, data_file_count=3)
    assert found == MaintenanceSettings(
        True, {"expire": expire, "orphans": Schedule(interval_second=86_400)}, 0, 5, 7
    )


def test_an_action_may_be_added_by_its_schedule() -> None:
    found = MaintenanceSettings.of({"orphans.schedule.commit-count": 9})
    assert found.schedules == {**DEFAULT_SCHEDULES, "orphans": Schedule(commit_count=9)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, "on, off, or a mapping of options, not 7"),
        ("maybe", "on, off, or a mapping"),
        ({"rate-limit-second": 1}, "did you mean 'rate-limit-seconds'"),
        ({"expire.schedule.commits": 1}, "expire.schedule.commit-count"),
        ({"actions": ["expires"]}, "did you mean 'expire'"),
        ({"actions": "orphans"}, "orphans has no schedule, so it would never run"),
        (
            {"actions": "expire", "orphans.schedule.commit-count": 1},
            "orphans is given a schedule, but is none of",
        ),
        ({"max-lag-seconds": 0}, "max-lag-seconds is 0; it must be at least 1"),
        ({"max-lag-seconds": 1.5}, "must be a whole number"),
        ({"max-lag-seconds": True}, "must be a whole number"),
        ({"lease-seconds": "long"}, "must be a whole number, not 'long'"),
    ],
)
def test_what_is_wrong(given: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match="maintenance: ") as raised:
        MaintenanceSettings.of(given)
    assert message in str(raised.value)


def test_the_declared_options_are_those_that_are_read() -> None:
    defaults = MaintenanceSettings()
    declared = {each.name: each.default for each in maintenance_options()}
    assert declared["rate-limit-seconds"] == str(defaults.rate_limit_seconds)
    assert declared["max-lag-seconds"] == str(defaults.max_lag_seconds)
    assert declared["lease-seconds"] == str(defaults.lease_seconds)
    assert {name for name in declared if ".schedule." in name} == {
        f"{action}.schedule.{part.replace('_', '-')}" for action in ACTIONS for part in vars(Schedule())
    }
    for name, default in declared.items():
        if ".schedule." in name:
            action, _, part = name.split(".")
            known = vars(DEFAULT_SCHEDULES.get(action, Schedule()))[part.replace("-", "_")]
            assert default == ("" if known is None else str(known))


def test_default_schedules_are_of_actions_that_there_are() -> None:
    assert maintenance_settings._SCHEDULES.keys() >= DEFAULT_SCHEDULES.keys()
    assert all(schedule.is_on for schedule in DEFAULT_SCHEDULES.values())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", True),
        ("maintenance: off\n", False),
        ("maintenance: on\n", True),
        ("maintenance: 'off'\n", False),
        ("maintenance:\n  lease-seconds: 5\n", {"lease-seconds": 5}),
        ("maintenance:\n  actions: [expire, metadata]\n", {"actions": ("expire", "metadata")}),
    ],
)
def test_pipeline_files(text: str, wanted: Any) -> None:
    assert parse_pipeline(FILE + text, "p.yaml", {}).maintenance == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maintenance: 7\n", "p.yaml: maintenance must be on, off or a mapping, not a number (line 6)"),
        ("maintenance:\n  lease-second: 5\n", "did you mean 'lease-seconds'? (line 7)"),
        ("maintenance:\n  actions: orphans\n", "p.yaml: maintenance: orphans has no schedule"),
    ],
)
def test_wrong_pipeline_files(text: str, message: str) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        parse_pipeline(FILE + text, "p.yaml", {})
    assert message in str(raised.value)
