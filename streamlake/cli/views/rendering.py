"""Formats values for people in a terminal: sizes, counts, times, tables, bars."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamlake.read.natural_values import json_ready

BAR_WIDTH = 40
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_EIGHTHS = " ▏▎▍▌▋▊▉"


def human_size(count: int | None) -> str:
    """Bytes in binary units: 812 B, 1.5 MiB."""
    if count is None:
        return ""
    size, at = float(count), 0
    while size >= 1024 and at < len(_SIZES) - 1:
        size, at = size / 1024, at + 1
    return f"{count} B" if at == 0 else f"{size:.1f} {_SIZES[at]}"


def human_count(count: int | float | None) -> str:
    """A number with separators: 1,234,567."""
    return "" if count is None else f"{round(count):,}"


def human_time(moment: datetime | None) -> str:
    """A time in UTC, to the millisecond."""
    if moment is None:
        return ""
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"


def human_value(value: Any) -> str:
    """A bound or a partition value: nulls are shown, control characters escaped, long texts cut."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return "0x" + (value.hex() if len(value) <= 16 else value[:16].hex() + "…")
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    return text if len(text) <= 40 else text[:39] + "…"


def human_partition(partition: Mapping[str, Any]) -> str:
    """A partition: `ts_day=2024-01-01 category=view`; empty for an unpartitioned table."""
    return " ".join(f"{name}={human_value(value)}" for name, value in partition.items())


def grid(title: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> Table:
    """A table of texts; `columns` are (heading, "left" | "right"). Texts are never read as markup."""
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, justify in columns:
        # Cut numbers and ids are useless, so only texts may be folded.
        table.add_column(
            heading,
            justify="right" if justify == "right" else "left",
            no_wrap=justify == "right",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """Two columns without a frame: name and value."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name), Text(value))
    return table


def bar(value: float, largest: float, width: int = BAR_WIDTH) -> str:
    """A bar in eighths of a character; anything above zero is visible."""
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(1, round(value / largest * width * 8))
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def bars(pairs: Sequence[tuple[str, int]], width: int = BAR_WIDTH) -> Table:
    """A bar chart: label, bar, count."""
    largest = max((count for _, count in pairs), default=0)
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="cyan", min_width=width)
    table.add_column(justify="right", no_wrap=True)
    for label, count in pairs:
        table.add_row(Text(label), Text(bar(count, largest, width)), Text(human_count(count)))
    return table


def terminal() -> Console:
    """A console on stdout. A pipe gets more width, so that ids and paths are not folded at 80 columns."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """JSON text in which times are ISO, bytes hex, and decimals and UUIDs texts."""
    return json.dumps(json_ready(value), indent=indent, ensure_ascii=False)
