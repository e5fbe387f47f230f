"""Failpoints: what the variable says, what happens at an armed place, and that the table of them is true."""

from __future__ import annotations

import ast
import json
import os
import pickle
import signal
import subprocess
import sys
import timeit
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlake import clock, failpoints
from streamlake.cli import main as cli
from streamlake.errors import CommitConflictError, InvalidOptionError
from streamlake.failpoints import BOTH, DRIVER, EXECUTOR, KNOWN, VARIABLE, FailpointError, arm, failpoint

PACKAGE = Path(failpoints.__file__).parent


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def test_every_registered_failpoint_is_called_and_every_called_one_is_registered() -> None:
    called: dict[str, list[str]] = {}
    for module in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "failpoint":
                [name] = node.args
                assert isinstance(name, ast.Constant), f"{module}: a failpoint's name is a literal"
                called.setdefault(name.value, []).append(module.relative_to(PACKAGE).as_posix())
    assert set(called) == set(KNOWN)
    rooms = {name: {path.partition("/")[0] for path in paths} for name, paths in called.items()}
    assert all("write" not in rooms[name] for name, (where, _) in KNOWN.items() if where == DRIVER)
    assert {where for where, _ in KNOWN.values()} == {DRIVER, EXECUTOR, BOTH}


def test_nothing_happens_unarmed() -> None:
    failpoint("before-swap")
    arm("after-swap=raise")
    failpoint("before-swap")
    with pytest.raises(FailpointError, match="raised at the failpoint after-swap"):
        failpoint("after-swap")


def test_unarmed_costs_less_than_a_tenth_of_a_microsecond() -> None:
    calls = 100_000
    best = min(timeit.repeat(lambda: failpoint("before-swap"), number=calls, repeat=5)) / calls
    assert best < 400e-9, "with the loop around it, and slack for a busy machine"


def test_the_error_of_raise_travels() -> None:
    arm("before-swap=raise")
    with pytest.raises(FailpointError) as raised:
        failpoint("before-swap")
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_raise_takes_one_of_our_own_errors() -> None:
    arm("before-swap=raise:CommitConflictError")
    with pytest.raises(CommitConflictError, match="before-swap"):
        failpoint("before-swap")


def test_nth_counts_the_calls_of_the_process() -> None:
    arm("before-swap=raise,nth=3; after-swap=raise,nth=1")
    failpoint("before-swap")
    failpoint("before-swap")
    with pytest.raises(FailpointError):
        failpoint("after-swap")
    with pytest.raises(FailpointError):
        failpoint("before-swap")
    failpoint("before-swap")
    failpoint("after-swap")


def test_once_is_once_for_all_who_share_the_mark(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for _ in range(2):
        arm(f"before-swap=raise,once={mark}")
        if not mark.exists():
            with pytest.raises(FailpointError):
                failpoint("before-swap")
        failpoint("before-swap")
    assert mark.read_text() == str(os.getpid())


def test_delay_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(clock, "sleep", slept.append)
    arm("before-swap=delay:2.5;before-swap=delay:1,nth=2")
    failpoint("before-swap")
    failpoint("before-swap")
    assert slept == [2.5, 2.5, 1.0]


@pytest.mark.parametrize(
    ("action", "code"), [("exit", failpoints.EXIT_CODE), ("kill", -signal.SIGKILL), ("raise", 1)]
)
def test_a_process_is_armed_by_its_environment(action: str, code: int) -> None:
    text = "import atexit; from streamlake.failpoints import failpoint; atexit.register(print, 'clean');"
    done = subprocess.run(
        [sys.executable, "-c", f"{text} failpoint('before-tasks'); failpoint('before-swap'); print('on')"],
        env={**os.environ, VARIABLE: f"before-swap={action}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ("clean\n" if action == "raise" else "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("before-swop=kill", "there is no failpoint 'before-swop'; did you mean 'before-swap'?"),
        ("zzz=kill", "there is no failpoint 'zzz'; known here: offsets-planned"),
        ("before-swap", "it has no action; write NAME=ACTION"),
        ("before-swap=kil", "there is no action 'kil'; did you mean 'kill'?"),
        ("before-swap=kill:9", "kill takes nothing after it"),
        ("before-swap=delay", "delay needs seconds, for example delay:2.5"),
        ("before-swap=delay:soon", "delay needs seconds"),
        ("before-swap=raise:StorageEror", "did you mean 'StorageError'?"),
        ("before-swap=kill,nht=2", "there is no setting 'nht'; did you mean 'nth'?"),
        ("before-swap=kill,nth=0", "nth=0 is not a count from 1 on"),
        ("before-swap=kill,once=", "once needs the path of a file"),
    ],
)
def test_what_does_not_exist_is_an_error(text: str, told: str) -> None:
    with pytest.raises(InvalidOptionError, match="STREAMLAKE_FAILPOINTS: '") as raised:
        arm(f"after-swap=kill;{text}")
    assert told in str(raised.value)
    failpoint("after-swap")


def test_a_wrong_variable_stops_a_command_before_it_starts() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streamlake", "inspect", "/nowhere"],
        env={**os.environ, VARIABLE: "before-swop=kill"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == cli.FAILED
    assert "did you mean 'before-swap'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["failpoints"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in KNOWN)
    with pytest.raises(SystemExit):
        cli.main(["failpoints", "--json"])
    listed = json.loads(capsys.readouterr().out)
    assert {name: (each["where"], each["what"]) for name, each in listed.items()} == KNOWN
