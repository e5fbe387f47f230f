"""Readable values."""

from __future__ import annotations

import io
import json
import uuid
from datetime import date, datetime, time, timezone
from decimal import Decimal

import pytest
from rich.console import Console

from streamlake.cli.views import rendering
from streamlake.wording import counted


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, ""), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 1024**3, "5.0 GiB"), (2**70, "1048576.0 PiB")],
)  # fmt: skip
def test_sizes(count: int | None, text: str) -> None:
    assert rendering.human_size(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (b"\x00\xff", "0x00ff"),
        (bytes(20), "0x" + "00" * 16 + "…"),
        (-0.0, "-0.0"),
        (float("nan"), "nan"),
        (date(1969, 12, 31), "1969-12-31"),
        (Decimal("12.30"), "12.30"),
        ("", ""),
        ("größe", "größe"),
        ("a\nb\x1b[31m", "a\\nb\\x1b[31m"),
        ("x" * 41, "x" * 39 + "…"),
    ],
)
def test_values(value: object, text: str) -> None:
    assert rendering.human_value(value) == text


def test_counts_and_times() -> None:
    assert rendering.human_count(1234567) == "1,234,567"
    assert rendering.human_count(None) == ""
    assert (
        rendering.human_time(datetime(2024, 1, 2, 3, 4, 5, 6789, timezone.utc)) == "2024-01-02 03:04:05.006"
    )
    assert rendering.human_time(None) == ""


def test_bar() -> None:
    assert rendering.bar(10, 10, 4) == "████"
    assert rendering.bar(5, 10, 4) == "██"
    assert rendering.bar(1, 1000, 4) == "▏", "what is there is visible"
    assert rendering.bar(0, 10, 4) == ""
    assert rendering.bar(1, 0, 4) == ""


def test_grid_takes_no_markup() -> None:
    text = _printed(rendering.grid("[bold]t", [("[red]h", "left")], [["[blue]x"]]))
    assert "[bold]t" in text
    assert "[blue]x" in text


def test_partition() -> None:
    assert rendering.human_partition({"a": date(2024, 1, 1), "b": None}) == "a=2024-01-01 b=null"
    assert rendering.human_partition({}) == ""


def test_json() -> None:
    value = {
        1: [date(2024, 1, 1), time(1, 2), datetime(2024, 1, 1, tzinfo=timezone.utc)],
        "b": b"\x01",
        "d": Decimal("1.50"),
        "u": uuid.UUID(int=1),
        "nan": float("nan"),
        "inf": -float("inf"),
        "n": None,
        "t": (True, 1, 1.5),
    }
    assert json.loads(rendering.json_text(value)) == {
        "1": ["2024-01-01", "01:02:00", "2024-01-01T00:00:00+00:00"],
        "b": "01",
        "d": "1.50",
        "u": "00000000-0000-0000-0000-000000000001",
        "nan": "nan",
        "inf": "-inf",
        "n": None,
        "t": [True, 1, 1.5],
    }


def _printed(renderable: object) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(renderable)
    return out.getvalue()


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1_234_567, "1,234,567 rows")]
)
def test_numbers_of_things(count: int, text: str) -> None:
    assert counted(count, "row") == text


def test_numbers_of_things_with_a_plural_of_their_own() -> None:
    assert [counted(count, "branch", "branches") for count in (1, 2)] == ["1 branch", "2 branches"]


def _at(width: int, renderable: object) -> list[str]:
    out = io.StringIO()
    rendering.show(renderable, Console(file=out, width=width))  # type: ignore[arg-type]
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip() and "─" not in line]


def test_a_grid_gets_narrower_then_leaves_columns_out_then_stacks() -> None:
    columns = [("id", "right"), ("added rows", "right"), ("note", "left")]
    shown = rendering.grid("", columns, [["1234567890", "4,000,000", "a few words"]], optional=["note"])
    assert _at(40, shown) == [
        "         id   added rows   note", " 1234567890    4,000,000   a few words",
    ]  # fmt: skip
    assert _at(38, shown) == [
        "                  added",
        "         id        rows   note",
        " 1234567890   4,000,000   a few words",
    ]
    assert _at(36, shown) == [
        "         id   added rows",
        " 1234567890    4,000,000",
        "left out: note (--json shows all)",
    ]
    assert _at(23, shown) == ["id          1234567890", "added rows  4,000,000", "note        a few words"]


def test_a_long_path_or_command_in_facts_is_whole() -> None:
    path = "/a/path/that/is/longer/than/a/line"
    shown = rendering.facts([("at", path), ("do", f"run `ls {path}` again"), ("n", "1 2")])
    assert _at(24, shown) == [
        "at", f"  {path}", "do", "  run", f"  `ls {path}`", "  again", "n   1 2",
    ]  # fmt: skip


def test_bars_get_shorter_then_numbers_are_left() -> None:
    shown = rendering.bars([("eu", 400), ("us", 200)], width=20)
    assert _at(40, shown) == [f"eu {'█' * 20} 400", f"us {'█' * 10}           200"]
    assert _at(17, shown) == ["eu ██████████ 400", "us █████      200"]
    assert _at(12, shown) == ["eu  400", "us  200"]
