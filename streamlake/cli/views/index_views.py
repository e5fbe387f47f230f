"""Terminal views of `streamlake index`: a table's key index."""

from __future__ import annotations

from rich.console import Group, RenderableType

from streamlake.cli.views.rendering import facts, grid, human_count, human_size, human_time, human_value
from streamlake.read.metadata_tables import Row
from streamlake.wording import counted


def status_view(content: Row) -> RenderableType:
    """The index: its state, its size, and the snapshots that it lags behind."""
    return facts(_status_pairs(content))


def check_view(content: Row) -> RenderableType:
    """The status, the counts of a check, and examples of what is wrong."""
    pairs = [
        *_status_pairs(content),
        ("live rows", human_count(content["live_rows"])),
        ("dead places", human_count(content["dead_places"])),
        ("check", "every live row is found" if content["is_good"] else check_words(content)),
    ]
    if content["is_good"]:
        return facts(pairs)
    return Group(facts(pairs), _examples(content))


def check_words(content: Row) -> str:
    """What is wrong, in a few words."""
    missing, wrong = content["missing_rows"], content["rows_at_wrong_positions"]
    return (
        f"the key index misses {counted(missing, 'live row')} and has wrong positions for "
        f"{human_count(wrong)}, of {human_count(content['live_rows'])}"
    )


def _status_pairs(content: Row) -> list[tuple[str, str]]:
    pairs = [
        ("location", content["location"]),
        ("branch", content["branch"]),
        ("key", ", ".join(content["key"])),
        ("sequence by", ", ".join(content["sequence_by"]) or "nothing"),
    ]
    if content["state"] is None:
        return [*pairs, ("index", "none yet: the next checkpoint builds it"), *_above(content)]
    of = f"{content['snapshot_id']} of {human_time(content['committed_at'])} UTC"
    pairs += [
        ("snapshot", f"{of}{', built anew for it' if content['is_rebuilt'] else ''}"),
        ("state", content["state"]),
    ]
    if content["problem"] is not None:
        return [*pairs, ("index", f"unusable: {content['problem']}"), *_above(content)]
    missing = content["missing_runs"]
    return [
        *pairs,
        ("buckets", human_count(content["buckets"])),
        ("runs", human_count(content["runs"])),
        ("entries", human_count(content["entries"])),
        ("tombstones", human_count(content["tombstones"])),
        ("size", human_size(content["bytes"])),
        (
            "files",
            "all there" if not missing else f"{len(missing)} missing or cut short: {', '.join(missing)}",
        ),
        *_above(content),
    ]


def _above(content: Row) -> list[tuple[str, str]]:
    if not content["snapshots_above"] and not content["data_files_above"]:
        return [("not indexed yet", "nothing")]
    return [
        (
            "not indexed yet",
            f"{counted(content['data_files_above'], 'data file')} with "
            f"{counted(content['rows_above'], 'row')}, from "
            f"{counted(content['snapshots_above'], 'snapshot')} above",
        )
    ]


def _examples(content: Row) -> RenderableType:
    return grid(
        "Examples",
        [("problem", "left"), ("key", "left"), ("row", "left"), ("the index says", "left")],
        [
            (
                row["problem"],
                ", ".join(f"{name}={human_value(value)}" for name, value in row["key"].items()),
                f"{row['file']}:{row['position']}",
                "\n".join(row["index_says"]) or "nothing",
            )
            for row in content["examples"]
        ],
    )
