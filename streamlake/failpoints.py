"""Failpoints: named places in the commit protocol where a test or an operator can make a process fail.

They are armed from outside, by the environment variable STREAMLAKE_FAILPOINTS of a driver (its Python workers
inherit it):

    before-swap=kill                    SIGKILL to the process that gets there
    data-file-closed=raise,nth=3        an unforeseen error, on the third call in a process
    after-swap=delay:2.5                go on after 2.5 seconds
    manifest-list-written=exit          os._exit: nothing is cleaned up, but the process ends by itself
    before-swap=raise:StorageError      one of streamlake's own errors
    result-returned=kill,once=/tmp/m    only while the file /tmp/m does not exist; it is created by firing

Several are separated by `;`. Invariant: nothing fails unless it is armed. Unarmed, a call is one look at a
global name.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from streamlake import clock, errors
from streamlake.errors import InvalidOptionError, StreamlakeError
from streamlake.options import suggestion

VARIABLE = "STREAMLAKE_FAILPOINTS"
EXIT_CODE = 86
"""The exit code of the action `exit`."""
ACTIONS = ("exit", "kill", "raise", "delay")
SETTINGS = ("nth", "once")
DRIVER, EXECUTOR, BOTH = "driver", "executor", "both"

REGISTERED: dict[str, tuple[str, str]] = {
    "offsets-planned": (
        DRIVER,
        "direct path: the end of a micro-batch is decided, the offset log lacks it",
    ),
    "offsets-logged": (DRIVER, "direct path: the offset log has it, nothing of the micro-batch is read"),
    "splits-planned": (
        DRIVER,
        "a table as source: the splits of a micro-batch are planned, nothing is read",
    ),
    "table-created": (DRIVER, "a stream's first micro-batch has created the table"),
    "checkpoint-noted": (DRIVER, "the checkpoint directory has noted which table it writes"),
    "pending-read": (DRIVER, "recovery: what a predecessor has staged is read"),
    "before-recommit": (DRIVER, "recovery: a predecessor's checkpoint is about to be committed"),
    "after-recommit": (DRIVER, "recovery: it is committed, and still staged"),
    "before-indexing": (
        DRIVER,
        "rows that the key index does not know are about to be read (a rebuild: all)",
    ),
    "after-indexing": (DRIVER, "these rows are in runs of the index that nothing names yet"),
    "before-tasks": (DRIVER, "the writer tasks are about to start"),
    "data-file-opened": (EXECUTOR, "a data file is open and empty"),
    "data-file-closed": (EXECUTOR, "a data file is complete, and known to its writer alone"),
    "delete-file-closed": (BOTH, "a delete file or a Puffin file of deletion vectors is complete"),
    "index-run-written": (BOTH, "a run of the key index is complete"),
    "before-result": (EXECUTOR, "a task has written all its files and has not reported them"),
    "result-returned": (EXECUTOR, "a task has handed over its result and has not ended"),
    "file-rewritten": (
        EXECUTOR,
        "copy-on-write: the files of one task are written again, and not yet reported",
    ),
    "files-rewritten": (DRIVER, "copy-on-write: the results of all rewriting tasks are there"),
    "results-collected": (DRIVER, "the results of all writer tasks are there, nothing is staged"),
    "delta-manifest-written": (DRIVER, "one of a checkpoint's delta manifests is written"),
    "index-state-stored": (DRIVER, "the key index after the checkpoint is stored, nothing names it"),
    "committable-recorded": (DRIVER, "the checkpoint is staged; the commit has not begun"),
    "before-resolution": (DRIVER, "another writer was first: positions are about to be resolved again"),
    "after-resolution": (
        DRIVER,
        "they are, and the checkpoint is staged again; its older manifests are still there",
    ),
    "manifest-list-written": (DRIVER, "a snapshot's manifest list is written"),
    "before-swap": (DRIVER, "the metadata pointer is about to be moved"),
    "metadata-written": (
        DRIVER,
        "the new metadata file is complete under a temporary name (local file systems)",
    ),
    "after-create": (
        DRIVER,
        "the new version is in the table, the version hint is the old one (file system tables)",
    ),
    "after-swap": (DRIVER, "the snapshot is in the table"),
    "before-clean-up": (DRIVER, "files of attempts that were not committed are about to be deleted"),
    "before-commit-note": (DRIVER, "the commit is done; the checkpoint directory does not know of it"),
    "commit-noted": (DRIVER, "the checkpoint directory has noted that the table holds a checkpoint of it"),
    "committable-removed": (DRIVER, "what was staged for an earlier checkpoint is removed"),
    "index-files-pruned": (DRIVER, "a file of the key index that nothing needs is deleted, others are left"),
    "before-return": (DRIVER, "everything is done; Spark's commit log does not have the checkpoint"),
}
"""Name -> where it is passed (on the driver, in a Python worker of an executor, or in both), and the state at
that point.
"""

MAINTENANCE: dict[str, tuple[str, str]] = {
    "position-map-written": (
        DRIVER,
        "maintenance: a compaction's position map is complete, nothing names it",
    ),
    "expiry-planned": (DRIVER, "maintenance: the snapshots to expire are chosen, nothing is changed"),
    "snapshots-expired": (DRIVER, "maintenance: the snapshots are out of the table, their files are there"),
    "expired-files-deleted": (
        DRIVER,
        "maintenance: a group of files of expired snapshots is deleted, others are left",
    ),
    "delete-written": (
        DRIVER,
        "delete by filter: the new files and delete files are written, and not committed",
    ),
    "table-forgotten": (DRIVER, "drop with purge: the catalog has forgotten the table, its files are there"),
    "orphans-deleted": (DRIVER, "maintenance: a group of orphans is deleted, others are left"),
    "old-metadata-deleted": (
        DRIVER,
        "maintenance: some old metadata files are deleted, others left",
    ),
    "deletes-planned": (DRIVER, "maintenance: which deletes are converted is decided, nothing is written"),
    "deletes-converted": (DRIVER, "maintenance: the new delete files are written, no snapshot has them"),
    "maintenance-begun": (
        DRIVER,
        "maintenance beside a stream: the table's lease is taken, no action has begun",
    ),
    "manifest-rewritten": (DRIVER, "maintenance: a manifest is written again, no snapshot lists it"),
    "file-group-rewritten": (
        DRIVER,
        "compaction: a group's new data files are complete, and not yet reported",
    ),
    "file-groups-rewritten": (DRIVER, "compaction: all new data files are there, the commit has not begun"),
    "deletes-carried-over": (
        DRIVER,
        "compaction: deletes of others are written for the new files, no snapshot lists them",
    ),
    "compaction-committed": (DRIVER, "compaction: the snapshot is in the table"),
}
"""The same, for what no stream passes."""
KNOWN = {**REGISTERED, **MAINTENANCE}


class FailpointError(RuntimeError):
    """What the action `raise` raises by default: an error that nothing handles."""


@dataclass(frozen=True)
class Arming:
    """What happens at a failpoint.

    `argument` is the action's own (seconds, an error's name); `nth` 0 means every time.
    """

    action: str
    argument: str = ""
    nth: int = 0
    once: str = ""


_armed: Mapping[str, tuple[Arming, ...]] = {}
_calls: Counter[str] = Counter()


def failpoint(name: str) -> None:
    """Do what this failpoint is armed with; nothing where it is not armed."""
    if _armed:
        _fire(name)


def arm(text: str) -> None:
    """Arm what `text` says, as the variable does, and disarm everything else; counts start again.

    Raises InvalidOptionError for names, actions and settings that do not exist.
    """
    global _armed
    _armed = parse(text)
    _calls.clear()


def parse(text: str) -> dict[str, tuple[Arming, ...]]:
    """The armings in a value of the variable, by failpoint. Raises InvalidOptionError."""
    armed: dict[str, tuple[Arming, ...]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, equals, rest = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise _wrong(part, "it has no action; write NAME=ACTION, for example before-swap=kill")
        _require_known(part, "failpoint", name, KNOWN)
        armed[name] = (*armed.get(name, ()), _arming(part, rest))
    return armed


def _arming(part: str, text: str) -> Arming:
    action, *settings = (piece.strip() for piece in text.split(","))
    kind, _, argument = action.partition(":")
    _require_known(part, "action", kind, ACTIONS)
    if kind == "delay" and not _is_number(argument):
        raise _wrong(part, "delay needs seconds, for example delay:2.5")
    if kind == "raise" and argument:
        _require_known(part, "error", argument, _errors())
    if kind in ("exit", "kill") and argument:
        raise _wrong(part, f"{kind} takes nothing after it")
    given: dict[str, str] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        _require_known(part, "setting", key, SETTINGS)
        given[key] = value
    nth = given.get("nth", "0")
    if "nth" in given and (not nth.isdecimal() or int(nth) < 1):
        raise _wrong(part, f"nth={nth} is not a count from 1 on")
    if given.get("once") == "":
        raise _wrong(part, "once needs the path of a file, which firing creates")
    return Arming(kind, argument, int(nth), given.get("once", ""))


def _require_known(part: str, what: str, name: str, known: Mapping[str, object] | tuple[str, ...]) -> None:
    if name in known:
        return
    near = suggestion(name, known)
    hint = f"did you mean '{near}'?" if near else f"known here: {', '.join(known)}"
    raise _wrong(part, f"there is no {what} '{name}'; {hint}")


def _wrong(part: str, problem: str) -> InvalidOptionError:
    return InvalidOptionError(f"{VARIABLE}: '{part}': {problem}")


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False


def _errors() -> dict[str, type[StreamlakeError]]:
    found = {name: getattr(errors, name) for name in dir(errors)}
    return {
        name: kind
        for name, kind in found.items()
        if isinstance(kind, type) and issubclass(kind, StreamlakeError)
    }


def _fire(name: str) -> None:
    _calls[name] += 1
    for arming in _armed.get(name, ()):
        if arming.nth in (0, _calls[name]) and _is_first(arming.once):
            _ACTIONS[arming.action](name, arming.argument)


def _is_first(path: str) -> bool:
    """Whether no process has fired with this marker file, which holds the process id of the one that did."""
    if not path:
        return True
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w") as file:
        file.write(str(os.getpid()))
    return True


def _exit(name: str, argument: str) -> NoReturn:
    os._exit(EXIT_CODE)


def _kill(name: str, argument: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    clock.sleep(60)


def _raise(name: str, argument: str) -> NoReturn:
    if argument:
        raise _errors()[argument](f"raised at the failpoint {name}")
    raise FailpointError(f"raised at the failpoint {name}")


def _delay(name: str, argument: str) -> None:
    clock.sleep(float(argument))


_ACTIONS: dict[str, Callable[[str, str], None]] = {
    "exit": _exit,
    "kill": _kill,
    "raise": _raise,
    "delay": _delay,
}

arm(os.environ.get(VARIABLE, ""))
