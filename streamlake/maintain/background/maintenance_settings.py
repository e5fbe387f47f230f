"""The settings of maintenance beside a stream, from a pipeline file or a sink's argument.

The words are those of Iceberg's TableMaintenance for Flink (`flink-maintenance.*`), with the names of the
actions as groups: `compact.schedule.data-file-count`. Invariant: an unknown name is an error, and an action
that is not scheduled never runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from streamlake.errors import InvalidOptionError
from streamlake.maintain.compact import compact_options
from streamlake.maintain.upkeep import ACTIONS, COMPACT, EXPIRE, MANIFESTS, METADATA, UpkeepSettings
from streamlake.options import Property, check_option_names

SCHEDULE = "schedule"
RATE_LIMIT = "rate-limit-seconds"
MAX_LAG = "max-lag-seconds"
LEASE = "lease-seconds"
MAX_BYTES = f"{COMPACT}.max-bytes"
COMPACT_OPTIONS = {f"{COMPACT}.{each.name}": each for each in compact_options.OPTIONS}
"""The options that are passed on to the compaction, by their names here."""
ACTIONS_OPTION = "actions"
_TEXT_ON, _TEXT_OFF = ("on", "true", "yes"), ("off", "false", "no")


@dataclass(frozen=True)
class Schedule:
    """When an action is due: as soon as commits have left this much since it ran last, or so many seconds
    have passed. None: that does not count.
    """

    commit_count: int | None = None
    data_file_count: int | None = None
    data_file_size: int | None = None
    pos_delete_file_count: int | None = None
    eq_delete_file_count: int | None = None
    interval_second: int | None = None

    @property
    def is_on(self) -> bool:
        """Whether the action is ever due."""
        return any(getattr(self, part.name) is not None for part in fields(self))


_SCHEDULES: Mapping[str, Schedule] = {
    COMPACT: Schedule(data_file_count=100, eq_delete_file_count=100),
    "deletes": Schedule(eq_delete_file_count=100),
    MANIFESTS: Schedule(commit_count=500),
    EXPIRE: Schedule(commit_count=100),
    METADATA: Schedule(commit_count=1_000),
}
DEFAULT_SCHEDULES: Mapping[str, Schedule] = {
    action: _SCHEDULES[action] for action in ACTIONS if action in _SCHEDULES
}
"""The actions that run where nothing is said, and when."""
_SCHEDULED: Mapping[str, str] = {
    "commit-count": "commits of the stream",
    "data-file-count": "new data files",
    "data-file-size": "bytes of new data files",
    "pos-delete-file-count": "new files or vectors of position deletes",
    "eq-delete-file-count": "new files of equality deletes",
    "interval-second": "seconds, if there were commits",
}
OPTIONS = (
    Property(
        ACTIONS_OPTION,
        ", ".join(DEFAULT_SCHEDULES),
        "The actions that run. One that has no schedule by default needs one.",
    ),
    Property(RATE_LIMIT, "60", "Between two runs on one table at least so many seconds pass."),
    Property(
        MAX_LAG,
        "60",
        "Nothing runs while the stream is behind by more seconds: while a checkpoint takes longer, or its "
        "watermark is older when it is committed.",
    ),
    Property(
        LEASE,
        "900",
        "For how many seconds a pipeline that begins a run keeps other pipelines from the table.",
    ),
    Property(
        MAX_BYTES,
        "1073741824",
        "How many bytes of data files one run rewrites; a single file may be larger.",
    ),
    Property(
        f"{COMPACT}.<option>",
        "",
        "An option of the compaction, by Iceberg's name, such as compact.target-file-size-bytes.",
    ),
    *(
        Property(f"<action>.{SCHEDULE}.{name}", "", f"The action is due after so many {what}.")
        for name, what in _SCHEDULED.items()
    ),
)


@dataclass(frozen=True)
class MaintenanceSettings:
    """When which actions run. `is_on` False: none. `compact` has the options of the compaction, `max_bytes`
    is how much of data files one run rewrites.
    """

    is_on: bool = True
    schedules: Mapping[str, Schedule] = field(default_factory=lambda: dict(DEFAULT_SCHEDULES))
    rate_limit_seconds: int = 60
    max_lag_seconds: int = 60
    lease_seconds: int = 900
    compact: Mapping[str, str] = field(default_factory=dict)
    max_bytes: int = 1024**3

    @staticmethod
    def of(given: object, where: str = "maintenance") -> MaintenanceSettings:
        """The settings that a user gives: None or False for none, True for the defaults, or options.

        Raises InvalidOptionError, which names `where`.
        """
        if isinstance(given, str) and given.lower() in (*_TEXT_ON, *_TEXT_OFF):
            given = given.lower() in _TEXT_ON
        if given is None or given is False:
            return OFF
        if given is True:
            return MaintenanceSettings()
        if not isinstance(given, Mapping):
            raise InvalidOptionError(f"{where}: it is on, off, or a mapping of options, not {given!r}")
        options = {str(name): value for name, value in given.items() if value is not None}
        check_option_names(options, [each.name for each in maintenance_options()], where)
        return MaintenanceSettings(
            True,
            _schedules(options, where),
            _number(options, RATE_LIMIT, MaintenanceSettings.rate_limit_seconds, where, least=0),
            _number(options, MAX_LAG, MaintenanceSettings.max_lag_seconds, where),
            _number(options, LEASE, MaintenanceSettings.lease_seconds, where),
            {
                each.name: str(options[name]).lower()
                for name, each in COMPACT_OPTIONS.items()
                if name in options
            },
            _number(options, MAX_BYTES, MaintenanceSettings.max_bytes, where),
        )


OFF = MaintenanceSettings(is_on=False, schedules={})
"""No maintenance."""


def maintenance_options() -> tuple[Property, ...]:
    """All options, with those of each action's schedule."""
    found = [each for each in OPTIONS if "<" not in each.name]
    found += [Property(name, "", each.meaning) for name, each in COMPACT_OPTIONS.items()]
    for action in ACTIONS:
        schedule = DEFAULT_SCHEDULES.get(action, Schedule())
        for name, what in _SCHEDULED.items():
            value = getattr(schedule, name.replace("-", "_"))
            default = "" if value is None else str(value)
            meaning = f"{action} is due after so many {what}."
            found.append(Property(f"{action}.{SCHEDULE}.{name}", default, meaning))
    return tuple(found)


def _schedules(options: Mapping[str, Any], where: str) -> dict[str, Schedule]:
    try:
        chosen = UpkeepSettings.actions(_texts(options.get(ACTIONS_OPTION)))
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{where}: {error}") from None
    found = {}
    for action in ACTIONS:
        given = {
            name.replace("-", "_"): _number(options, f"{action}.{SCHEDULE}.{name}", 0, where)
            for name in _SCHEDULED
            if f"{action}.{SCHEDULE}.{name}" in options
        }
        is_wanted = action in chosen if chosen else bool(given) or action in DEFAULT_SCHEDULES
        if given and not is_wanted:
            raise InvalidOptionError(
                f"{where}: {action} is given a schedule, but is none of the {ACTIONS_OPTION}; add it there, "
                "or leave the schedule out"
            )
        if is_wanted:
            found[action] = replace(DEFAULT_SCHEDULES.get(action, Schedule()), **given)
            if not found[action].is_on:
                raise InvalidOptionError(
                    f"{where}: {action} has no schedule, so it would never run; give "
                    f"{action}.{SCHEDULE}.commit-count or another one of its schedules"
                )
    return found


def _texts(value: object) -> Iterable[str]:
    if value is None:
        return ()
    return value.split(",") if isinstance(value, str) else map(str, value)  # type: ignore[call-overload]


def _number(options: Mapping[str, Any], name: str, default: int, where: str, *, least: int = 1) -> int:
    value = options.get(name)
    if value is None:
        return default
    try:
        if isinstance(value, bool | float):
            raise ValueError
        number = int(value)
    except (TypeError, ValueError):
        raise InvalidOptionError(f"{where}: {name} must be a whole number, not {value!r}") from None
    if number < least:
        raise InvalidOptionError(f"{where}: {name} is {number}; it must be at least {least}")
    return number
