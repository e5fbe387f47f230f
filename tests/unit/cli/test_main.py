"""The command line's manners: exit codes, one readable line on stderr, JSON alone on stdout."""

from __future__ import annotations

import sys

import pytest

import streamlake
from streamlake.cli import main as cli
from streamlake.commit.lineage import Finding, Kind, RecoverCommand, Way, WayOut, lineage_error
from streamlake.errors import DataInvalidError
from streamlake.pipeline.spark.spark_traces import traces_wanted


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out == f"streamlake {streamlake.__version__}\n"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--help") == 0
    out = capsys.readouterr().out
    for command in ("demo", "run", "inspect", "index"):
        assert command in out


@pytest.mark.parametrize("arguments", [["-h"], ["status", "-h"], ["index", "-h"], ["rejects", "edit", "-h"]])
def test_a_short_word_for_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*arguments) == 0
    assert "Usage: streamlake" in capsys.readouterr().out


def test_no_command_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: streamlake" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspekt"], "error: No such command 'inspekt'"),
        (["inspect"], "error: Missing argument 'TABLE'."),
        (["demo", "--warehuse", "x"], "error: No such option: --warehuse (Possible options: --warehouse)"),
        (["demo", "--rows", "0"], "error: Invalid value for '--rows'"),
        (["demo", "--rows", "many"], "error: Invalid value for '--rows'"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "/no/such/table"], "error: there is no Iceberg table at /no/such/table"),
        (["inspect", "/no/such/table", "snapshot"], "error: inspect: unknown option 'snapshot'; did you mean 'snapshots'?"),
        (["inspect", "t", "--catalog", "type=hadoop,x"], "error: --catalog: 'x' is not of the form key=value"),
        (["run", "/no/such.yaml"], "error: the pipeline file /no/such.yaml cannot be read"),
        (["demo", "--warehouse", "/dev/null/x"], "error: the warehouse /dev/null/x cannot be written"),
    ],
)  # fmt: skip
def test_failures_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--debug", "inspect", "/no/such/table"], ["inspect", "/no/such/table", "--debug"]]
)
def test_debug_shows_the_place(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith("error: there is no Iceberg table")


def test_debug_is_on_for_its_command_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[bool] = []
    monkeypatch.delenv("STREAMLAKE_DEBUG", raising=False)
    monkeypatch.setattr(cli, "_command", lambda _: lambda _: seen.append(traces_wanted()) or 0)
    assert (call("run", "p.yaml", "--debug"), call("run", "p.yaml")) == (0, 0)
    assert seen == [True, False]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            DataInvalidError("a file\nis broken"),
            "a file is broken [DataInvalidError: docs/operating/errors/data-invalid-error.md]",
        ),
        (FileNotFoundError(2, "No such file or directory", "/x"), "/x: No such file or directory"),
        (ValueError("odd"), "ValueError: odd (--debug shows where)"),
        (RuntimeError(), "RuntimeError (--debug shows where)"),
    ],
)
def test_descriptions(error: Exception, line: str) -> None:
    assert cli.describe(error) == line


def test_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_command", interrupted)
    assert call("inspect", "x") == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_the_command_line_needs_no_spark_to_inspect() -> None:
    import subprocess

    code = (
        "import sys; from streamlake.cli import main; from streamlake.cli.commands import inspect; "
        "print('pyspark' in sys.modules, 'kafka' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_refused_stream_has_what_was_found_in_its_first_line_and_each_way_out_in_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Finding(
        Kind.ROLLED_BACK,
        "/lake/orders was rolled back",
        "leave out the rows in between",
        (WayOut(Way.REWIND, "writes them again", 5), WayOut(Way.ADOPT, "leaves them out")),
        "restore the table",
    )
    error = lineage_error(found, RecoverCommand("/lake/orders", "orders"))

    def refused(_: str) -> int:
        raise error

    monkeypatch.setattr(cli, "_command", lambda _: refused)
    with pytest.raises(SystemExit, match="1"):
        cli.main(["run", "p.yaml"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "error: /lake/orders was rolled back.",
        "Continuing would leave out the rows in between.",
    ]
    assert lines[2].startswith("Stop every driver of the pipeline, then take one of these ways out ")
    assert len(lines) == 6
    assert lines[3].startswith("  (1) `streamlake recover /lake/orders --pipeline orders ")
    assert lines[5] == "  (3) restore the table [LineageError: docs/operating/errors/lineage-error.md]"
