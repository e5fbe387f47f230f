"""Options of an IcebergSource, declared for the code and the reference, and parsed once where they enter.

The names are Iceberg's own wherever it has one (FlinkReadOptions, ScanContext). What contradicts itself is
an error here, before any table is opened; what only a table shows is checked when reading begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from streamlake.errors import InvalidOptionError
from streamlake.options import Property, check_option_names, suggestion
from streamlake.spec.metadata.snapshot import MAIN_BRANCH

_WHERE = "IcebergSource"


class Strategy(str, Enum):
    """Where a stream begins (Iceberg's StreamingStartingStrategy). The value is the option's text."""

    TABLE_SCAN = "table-scan-then-incremental"
    LATEST = "incremental-from-latest-snapshot"
    LATEST_EXCLUSIVE = "incremental-from-latest-snapshot-exclusive"
    EARLIEST = "incremental-from-earliest-snapshot"
    SNAPSHOT_ID = "incremental-from-snapshot-id"
    SNAPSHOT_TIMESTAMP = "incremental-from-snapshot-timestamp"


PROPERTIES = (
    Property(
        "starting-strategy",
        Strategy.TABLE_SCAN.value,
        "Where a new checkpoint directory begins. `table-scan-then-incremental`: all rows of the current "
        "snapshot (or of the end, where one is given), then what later snapshots bring; "
        "`incremental-from-latest-snapshot`: the current snapshot's own rows and later ones; "
        "`incremental-from-latest-snapshot-exclusive`: later ones only; "
        "`incremental-from-earliest-snapshot`: "
        "from the oldest snapshot on that has not expired; `incremental-from-snapshot-id`: from "
        "start-snapshot-id or start-tag on, which is included; `incremental-from-snapshot-timestamp`: from "
        "the "
        "first snapshot on that was committed at start-snapshot-timestamp or later. A table without "
        "snapshots "
        "is read from its first one on.",
    ),
    Property("start-snapshot-id", "", "The first snapshot to read (of a batch: the last one not to read)."),
    Property("start-tag", "", "The same by a tag."),
    Property(
        "start-snapshot-timestamp",
        "",
        "Epoch milliseconds or an ISO time: snapshots committed then or later are read.",
    ),
    Property("end-snapshot-id", "", "The last snapshot to read: a stream finishes there."),
    Property("end-tag", "", "The same by a tag."),
    Property("branch", "main", "The branch whose snapshots are read."),
    Property("tag", "", "Of a batch: the tag whose rows are read."),
    Property("snapshot-id", "", "Of a batch: the snapshot whose rows are read."),
    Property("as-of-timestamp", "", "Of a batch: epoch milliseconds or an ISO time, whose snapshot is read."),
    Property(
        "streaming",
        "",
        "Whether this is a stream. The entrance says so itself; an option that contradicts it is an error.",
    ),
    Property(
        "monitor-interval",
        "60 s",
        "The table is asked for new snapshots at most this often, however short the trigger is.",
    ),
    Property(
        "max-planning-snapshot-count", "", "At most so many snapshots per micro-batch (default: no limit)."
    ),
    Property("max-files-per-trigger", "", "At most so many data files per micro-batch (default: no limit)."),
    Property(
        "max-rows-per-trigger",
        "",
        "About so many rows per micro-batch, as metadata counts them, and at least one row group (default: "
        "no "
        "limit).",
    ),
    Property(
        "max-bytes-per-trigger",
        "",
        "About so many bytes of data files per micro-batch, and at least one row group; 1g, 512m (default: "
        "no "
        "limit).",
    ),
    Property("split-size", "", "How many bytes a task reads (default: read.split.target-size, else 128m)."),
    Property(
        "split-lookback",
        "",
        "How many tasks are filled at a time when small files are combined (default: "
        "read.split.planning-lookback, else 10).",
    ),
    Property(
        "split-file-open-cost",
        "",
        "How many bytes a file counts for at least (default: read.split.open-file-cost, else 4m).",
    ),
    Property("plan-parallelism", "4", "How many manifests are read at a time."),
    Property(
        "watermark-column",
        "",
        "Files of one snapshot are read by the lower bounds of this column (a date, a timestamp, an int or a "
        "long), so that event time grows (default: in table order).",
    ),
    Property(
        "read-mode",
        "append",
        "`append`: the rows that appending snapshots added. `changes`: every row that a snapshot added or "
        "removed, with its row kind.",
    ),
    Property(
        "identifier-columns",
        "",
        "Of read-mode=changes: the columns by which the old and the new values of a row are paired, with "
        "commas between them (default: the table's identifier fields, else the row ids that tables of "
        "version 3 have).",
    ),
    Property(
        "compute-updates",
        "true",
        "Of read-mode=changes: the old and the new values of a row are `-U` and `+U`. With false they are "
        "`-D` and `+I`.",
    ),
    Property(
        "net-changes",
        "false",
        "Of read-mode=changes: one change for each row of a micro-batch (of a batch: of all that it reads), "
        "whatever its snapshots did to the row in between.",
    ),
    Property(
        "on-delete",
        "fail",
        "What read-mode=append does at a snapshot that deletes or overwrites rows: `fail`, or `skip` it with "
        "all that it added, and log how much that is.",
    ),
    Property(
        "fail-on-data-loss",
        "true",
        "Stop when a snapshot that is due has expired. With false it is left out, and the log says how many.",
    ),
    Property(
        "hold-snapshots",
        "false",
        "Keep a branch `streamlake-hold-<job id>` in the table that is read, from the read position to the "
        "newest snapshot, so that nobody's expiry passes what is not read yet. Needs the right to commit to "
        "that table. Only in `IcebergSink.start` and pipeline files.",
    ),
    Property("case-sensitive", "true", "Whether names in filter and columns have to match in case."),
)

_STARTS = ("start-snapshot-id", "start-tag", "start-snapshot-timestamp")
_ENDS = ("end-snapshot-id", "end-tag")
_BATCH_POINTS = ("snapshot-id", "tag", "as-of-timestamp")
_STREAM_ONLY = (
    "starting-strategy",
    "monitor-interval",
    "max-planning-snapshot-count",
    "max-files-per-trigger",
    "max-rows-per-trigger",
    "max-bytes-per-trigger",
    "hold-snapshots",
    "fail-on-data-loss",
)
_CHANGES_ONLY = ("identifier-columns", "compute-updates", "net-changes")
_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?")
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?")
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True)
class ReadLimits:
    """The most that one micro-batch takes; None is no limit. Rows and bytes are passed by a row group at
    most.
    """

    snapshots: int | None = None
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None

    @property
    def cuts_snapshots(self) -> bool:
        """Whether a snapshot may have to be read in parts."""
        return not (self.files is None and self.rows is None and self.bytes is None)


@dataclass(frozen=True)
class IcebergOptions:
    """Parsed options of an IcebergSource. None stands for what was not given.

    Times are milliseconds since 1970-01-01 UTC, `monitor_interval_seconds` may be a fraction. `streaming` is
    None unless it was given. Split sizes that are None come from the table's properties.
    """

    strategy: Strategy = Strategy.TABLE_SCAN
    start_snapshot_id: int | None = None
    start_timestamp_ms: int | None = None
    start_tag: str | None = None
    end_snapshot_id: int | None = None
    end_tag: str | None = None
    branch: str = MAIN_BRANCH
    tag: str | None = None
    snapshot_id: int | None = None
    as_of_timestamp_ms: int | None = None
    streaming: bool | None = None
    monitor_interval_seconds: float = 60.0
    limits: ReadLimits = ReadLimits()
    split_size: int | None = None
    split_lookback: int | None = None
    split_file_open_cost: int | None = None
    plan_parallelism: int = 4
    watermark_column: str | None = None
    read_mode: str = "append"
    identifier_columns: tuple[str, ...] | None = None
    computes_updates: bool = True
    net_changes: bool = False
    skips_deletes: bool = False
    fail_on_data_loss: bool = True
    hold_snapshots: bool = False
    case_sensitive: bool = True

    @property
    def has_start(self) -> bool:
        """Whether a snapshot is given at which reading begins."""
        return not (
            self.start_snapshot_id is None and self.start_tag is None and self.start_timestamp_ms is None
        )

    @property
    def has_end(self) -> bool:
        """Whether a snapshot is given at which reading ends."""
        return self.end_snapshot_id is not None or self.end_tag is not None


def parse_iceberg_options(options: Mapping[str, str]) -> IcebergOptions:
    """The parsed options.

    Raises InvalidOptionError for an unknown name (with the nearest known one), a value that does not parse,
    and options that contradict each other.
    """
    check_option_names(options, [each.name for each in PROPERTIES], _WHERE)
    given = {key: value.strip() for key, value in options.items()}
    for name, value in given.items():
        if not value:
            raise InvalidOptionError(f"{_WHERE}: {name} is empty; give a value, or leave it out")
    _check_alone(given, _STARTS, "choose where reading starts by one of them")
    _check_alone(given, _ENDS, "choose where reading ends by one of them")
    _check_alone(given, (*_BATCH_POINTS, "branch"), "choose what is read by one of them")
    read_mode = _choice(given, "read-mode", ("append", "changes"))
    _check_mode(given, read_mode)
    return IcebergOptions(
        strategy=_strategy(given),
        start_snapshot_id=_snapshot_id(given, "start-snapshot-id"),
        start_timestamp_ms=_timestamp_ms(given, "start-snapshot-timestamp"),
        start_tag=given.get("start-tag"),
        end_snapshot_id=_snapshot_id(given, "end-snapshot-id"),
        end_tag=given.get("end-tag"),
        branch=given.get("branch", MAIN_BRANCH),
        tag=given.get("tag"),
        snapshot_id=_snapshot_id(given, "snapshot-id"),
        as_of_timestamp_ms=_timestamp_ms(given, "as-of-timestamp"),
        streaming=_flag(given, "streaming") if "streaming" in given else None,
        monitor_interval_seconds=_seconds(given, "monitor-interval"),
        limits=ReadLimits(
            snapshots=_count(given, "max-planning-snapshot-count"),
            files=_count(given, "max-files-per-trigger"),
            rows=_count(given, "max-rows-per-trigger"),
            bytes=_size(given, "max-bytes-per-trigger"),
        ),
        split_size=_size(given, "split-size"),
        split_lookback=_count(given, "split-lookback"),
        split_file_open_cost=_size(given, "split-file-open-cost", least=0),
        plan_parallelism=_count(given, "plan-parallelism") or 4,
        watermark_column=given.get("watermark-column"),
        read_mode=read_mode,
        identifier_columns=_names(given, "identifier-columns"),
        computes_updates=_flag(given, "compute-updates"),
        net_changes=_flag(given, "net-changes"),
        skips_deletes=_choice(given, "on-delete", ("fail", "skip")) == "skip",
        fail_on_data_loss=_flag(given, "fail-on-data-loss"),
        hold_snapshots=_flag(given, "hold-snapshots"),
        case_sensitive=_flag(given, "case-sensitive"),
    )


def check_stream_options(options: Mapping[str, str], parsed: IcebergOptions) -> None:
    """Raises InvalidOptionError for options that a stream does not have."""
    if parsed.streaming is False:
        raise InvalidOptionError(
            f"{_WHERE}: streaming=false, but this is a stream; leave the option out, or read a batch"
        )
    for name in _BATCH_POINTS:
        if name in options:
            raise InvalidOptionError(
                f"{_WHERE}: {name} belongs to a batch, and this is a stream: choose where it begins by "
                "starting-strategy, and where it ends by end-snapshot-id or end-tag"
            )


def check_batch_options(options: Mapping[str, str], parsed: IcebergOptions) -> None:
    """Raises InvalidOptionError for options that a batch does not have."""
    if parsed.streaming is True:
        raise InvalidOptionError(
            f"{_WHERE}: streaming=true, but this is a batch; leave the option out, or read a stream"
        )
    for name in _STREAM_ONLY:
        if name in options:
            raise InvalidOptionError(
                f"{_WHERE}: {name} belongs to a stream, and this is a batch; leave it out"
            )
    points = [name for name in (*_BATCH_POINTS, "branch") if name in options]
    if parsed.read_mode == "changes" and points and points != ["branch"]:
        raise InvalidOptionError(
            f"{_WHERE}: {points[0]} reads one snapshot, and read-mode=changes what several have changed: say "
            "which by start-snapshot-id and end-snapshot-id, or by tags"
        )
    bounds = [name for name in (*_STARTS, *_ENDS) if name in options]
    if points and bounds and points != ["branch"]:
        raise InvalidOptionError(
            f"{_WHERE}: {points[0]} reads one snapshot, {bounds[0]} what several have added: give one of them"
        )


def _check_mode(given: Mapping[str, str], read_mode: str) -> None:
    if read_mode == "changes" and "on-delete" in given:
        raise InvalidOptionError(
            f"{_WHERE}: on-delete belongs to read-mode=append; read-mode=changes reads deletes as changes"
        )
    for name in _CHANGES_ONLY:
        if name in given and read_mode != "changes":
            raise InvalidOptionError(
                f"{_WHERE}: {name} belongs to read-mode=changes, and read-mode is {read_mode}; leave it out, "
                "or read changes"
            )


def _strategy(given: Mapping[str, str]) -> Strategy:
    """The strategy, which a start that is given stands for as well."""
    start = next((name for name in _STARTS if name in given), None)
    needed = {
        None: None,
        "start-snapshot-id": Strategy.SNAPSHOT_ID,
        "start-tag": Strategy.SNAPSHOT_ID,
        "start-snapshot-timestamp": Strategy.SNAPSHOT_TIMESTAMP,
    }[start]
    text = given.get("starting-strategy")
    if text is None:
        return needed or Strategy.TABLE_SCAN
    folded = text.lower().replace("_", "-")
    known = [each.value for each in Strategy]
    if folded not in known:
        near = suggestion(folded, known)
        hint = f"did you mean '{near}'?" if near else f"it can be {', '.join(known)}"
        raise InvalidOptionError(f"{_WHERE}: starting-strategy is '{text}'; {hint}")
    strategy = Strategy(folded)
    if strategy is Strategy.SNAPSHOT_ID and needed is not strategy:
        raise InvalidOptionError(
            f"{_WHERE}: starting-strategy={folded} needs start-snapshot-id or start-tag"
            + ("" if start is None else f", and {start} is given")
        )
    if strategy is Strategy.SNAPSHOT_TIMESTAMP and needed is not strategy:
        raise InvalidOptionError(
            f"{_WHERE}: starting-strategy={folded} needs start-snapshot-timestamp"
            + ("" if start is None else f", and {start} is given")
        )
    if needed not in (None, strategy):
        raise InvalidOptionError(
            f"{_WHERE}: starting-strategy={folded} chooses where the stream begins, and {start} another "
            f"place: leave one of them out"
        )
    return strategy


def _check_alone(given: Mapping[str, str], names: Iterable[str], advice: str) -> None:
    found = [name for name in names if name in given]
    if len(found) > 1:
        raise InvalidOptionError(f"{_WHERE}: {' and '.join(found)} exclude each other; {advice}")


def _names(given: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    text = given.get(name)
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _snapshot_id(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidOptionError(f"{_WHERE}: {name} is '{text}'; a snapshot id is a whole number") from None


def _timestamp_ms(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None or text.isdigit():
        return None if text is None else int(text)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise InvalidOptionError(
            f"{_WHERE}: {name} is '{text}'; give milliseconds since 1970 or an ISO time like "
            "2026-05-01T00:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp() * 1000)


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise InvalidOptionError(f"{_WHERE}: {name} is '{text}'; it must be a whole number of at least 1")
    return int(text)


def _size(given: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    found = _SIZE.fullmatch(text.lower())
    size = -1 if found is None else int(found[1]) * _FACTORS[found[2]]
    if size < least:
        raise InvalidOptionError(
            f"{_WHERE}: {name} is '{text}'; give bytes of at least {least}, such as 134217728 or 128m"
        )
    return size


def _seconds(given: Mapping[str, str], name: str) -> float:
    text = given.get(name, "60 s")
    found = _DURATION.fullmatch(text.lower())
    unit = None if found is None else _UNITS.get(found[2], _UNITS.get(f"{found[2]}s"))
    if found is None or unit is None:
        raise InvalidOptionError(
            f"{_WHERE}: {name} is '{text}'; give a number and a unit (ms, s, min, h), such as 60 s"
        )
    return float(found[1]) * unit


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = given.get(name, choices[0]).lower()
    if text not in choices:
        raise InvalidOptionError(f"{_WHERE}: {name} is '{given[name]}'; it can be {' or '.join(choices)}")
    return text


def _flag(given: Mapping[str, str], name: str) -> bool:
    [default] = [each.default for each in PROPERTIES if each.name == name]
    text = given.get(name, default).lower()
    if text not in ("true", "false"):
        raise InvalidOptionError(f"{_WHERE}: {name} is '{given[name]}'; it can be true or false")
    return text == "true"
