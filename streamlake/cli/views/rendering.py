"""Formats values for people in a terminal: sizes, counts, times, tables, bars."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from streamlake.read.natural_values import json_ready

BAR_WIDTH = 40
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEAST_BAR = 8
_PROSE_WIDTH = 24
_QUOTED, _BLANK = re.compile("`[^`\n]+`"), "\ue000"
"""What is never wrapped, and what stands for its blanks meanwhile."""
_EDGES, _GAP = 2, 3
"""The blanks around a table, and between two of its columns."""


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


def human_rows(live: int | None, at_most: int | None) -> str:
    """A number of live rows, or what it is at most."""
    if live is None and at_most is not None:
        return f"at most {human_count(at_most)}"
    return human_count(live)


def human_deleted_rows(live: int | None, deleted: int | None) -> str:
    """A number of deleted rows; without the live ones, those deleted by position are not all there may be."""
    return "unknown" if live is None else human_count(deleted)


def human_time(moment: datetime | None) -> str:
    """A time in UTC, to the millisecond."""
    if moment is None:
        return ""
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"


def human_duration(seconds: float | None) -> str:
    """A duration: 1.2 s, 3 min 20 s, 5 h 2 min, 2 d 3 h."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


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


class Grid:
    """A table of texts that never cuts one: it gets narrower, leaves columns out, or stacks its rows.

    Headings and texts are wrapped between words, and only where that is not enough, the columns of `optional`
    are left out, the first one first. Where words would still be cut, each row becomes one fact per line.
    """

    def __init__(
        self,
        title: str,
        columns: Sequence[tuple[str, str]],
        rows: Iterable[Sequence[str | Text]],
        optional: Sequence[str] = (),
    ) -> None:
        self._title = title
        self._columns = list(columns)
        self._rows = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
        self._optional = optional

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._title:
            for part in _parts(self._title, options.max_width, whole=options.overflow == "ignore"):
                yield Text(part, style="table.title", no_wrap=True, overflow="ignore")
        for count in range(len(self._optional) + 1):
            left_out = self._optional[:count]
            shown = [at for at, (heading, _) in enumerate(self._columns) if heading not in left_out]
            widths = _fitting([self._widths(at) for at in shown], options.max_width)
            if widths is None:
                continue
            yield self._table(shown, widths)
            if left_out:
                yield _wrapped(Text(f"left out: {', '.join(left_out)} (--json shows all)", style="dim"))
            return
        for number, row in enumerate(self._rows):
            if number or self._title:
                yield Text()
            pairs = zip(self._columns, row, strict=True)
            yield Facts([(heading, cell.plain) for (heading, _), cell in pairs if cell.plain])

    def _table(self, shown: Sequence[int], widths: Sequence[int]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for at, width in zip(shown, widths, strict=True):
            heading, justify = self._columns[at]
            side: JustifyMethod = "right" if justify == "right" else "left"
            table.add_column(Text(heading), justify=side, width=width, overflow="fold", no_wrap=False)
        for row in self._rows:
            table.add_row(*(row[at] for at in shown))
        return table

    def _widths(self, at: int) -> tuple[int, int]:
        """The least and the full width of a column; numbers, times and ids stay on one line."""
        heading, justify = self._columns[at]
        cells = [row[at].plain for row in self._rows]
        full = max(map(_line_width, (heading, *cells)))
        if justify == "right":
            return max(_word_width(heading), *map(_line_width, cells), 0), full
        return max(min(full, _PROSE_WIDTH), *map(_word_width, (heading, *cells))), full


class Facts:
    """Two columns without a frame: name and value, wrapped between words.

    A word that does not fit beside its name stands below it, in a line of its own. Printed by `show` it stays
    whole there, however long it is. Something in backquotes, such as a command, counts as one word.
    """

    def __init__(self, pairs: Iterable[tuple[str | Text, str]]) -> None:
        self._pairs = [
            (name if isinstance(name, Text) else Text(name, style="dim"), _QUOTED.sub(_unbroken, value))
            for name, value in pairs
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = max((name.cell_len for name, _ in self._pairs), default=0) + 2
        for name, value in self._pairs:
            room = options.max_width - names
            indent = Text(" " * names)
            head = name.copy()
            head.pad_right(names - name.cell_len)
            if _word_width(value) > room:
                yield name
                indent = head = Text(" " * (len(name.plain) - len(name.plain.lstrip()) + 2))
                room = options.max_width - indent.cell_len
            for line in value.split("\n"):
                for part in _parts(line, room, whole=options.overflow == "ignore"):
                    yield Text.assemble(head, part, no_wrap=True, overflow="ignore")
                    head = indent


class Bars:
    """A bar chart: label, bar, count. The bars get shorter on a narrow terminal, and then there are none."""

    def __init__(self, pairs: Sequence[tuple[str, int]], width: int) -> None:
        self._pairs = pairs
        self._width = width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels = max((cell_len(label) for label, _ in self._pairs), default=0)
        counts = max((len(human_count(count)) for _, count in self._pairs), default=0)
        width = min(self._width, options.max_width - labels - counts - 2)
        if width < _LEAST_BAR:
            yield Facts([(label, human_count(count)) for label, count in self._pairs])
            return
        largest = max((count for _, count in self._pairs), default=0)
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, style="cyan", min_width=width)
        table.add_column(justify="right", no_wrap=True)
        for label, count in self._pairs:
            table.add_row(Text(label), Text(bar(count, largest, width)), Text(human_count(count)))
        yield table


def grid(
    title: str,
    columns: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[str | Text]],
    optional: Sequence[str] = (),
) -> Grid:
    """A table of texts; `columns` are (heading, "left" | "right"), numbers and ids right.

    Texts are never read as markup. On a narrow terminal columns named in `optional` are left out.
    """
    return Grid(title, columns, rows, optional)


def facts(pairs: Iterable[tuple[str | Text, str]]) -> Facts:
    """Two columns without a frame: name and value. Names are dim, unless they have a style."""
    return Facts(pairs)


def bar(value: float, largest: float, width: int = BAR_WIDTH) -> str:
    """A bar in eighths of a character; anything above zero is visible."""
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(1, round(value / largest * width * 8))
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def bars(pairs: Sequence[tuple[str, int]], width: int = BAR_WIDTH) -> Bars:
    """A bar chart: label, bar, count."""
    return Bars(pairs, width)


def show(renderable: RenderableType, console: Console | None = None) -> None:
    """Print on stdout; a path longer than a line is left to the terminal to wrap, so it stays whole."""
    (console or terminal()).print(renderable, soft_wrap=True)


def terminal() -> Console:
    """A console on stdout. A pipe gets more width, so that ids and paths are not folded at 80 columns."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """JSON text in which times are ISO, bytes hex, and decimals and UUIDs texts."""
    return json.dumps(json_ready(value), indent=indent, ensure_ascii=False)


def _fitting(columns: Sequence[tuple[int, int]], width: int) -> list[int] | None:
    """Widths between the least and the full ones that fit beside each other; None: there are none."""
    spare = width - _EDGES - _GAP * (len(columns) - 1) - sum(least for least, _ in columns)
    if spare < 0:
        return None
    widths = [least for least, _ in columns]
    wanting = sorted(range(len(columns)), key=lambda at: columns[at][1] - columns[at][0])
    for number, at in enumerate(wanting):
        least, full = columns[at]
        more = min(full - least, spare // (len(wanting) - number))
        widths[at], spare = least + more, spare - more
    return widths


def _wrapped(text: Text) -> Text:
    text.no_wrap, text.overflow = False, "fold"
    return text


def _unbroken(quoted: re.Match[str]) -> str:
    return quoted[0].replace(" ", _BLANK)


def _parts(line: str, width: int, *, whole: bool) -> Iterator[str]:
    """The lines that a line becomes; a word that is wider than that has one of its own, or is folded."""
    part = ""
    for number, word in enumerate(line.split(" ")):
        longer = f"{part} {word}" if number else word
        if cell_len(longer.rstrip()) <= width:
            part = longer
            continue
        if part.strip():
            yield part.rstrip().replace(_BLANK, " ")
        part = word
        if not whole:
            *folded, part = chop_cells(word, max(width, 1))
            yield from (each.replace(_BLANK, " ") for each in folded)
    yield part.rstrip().replace(_BLANK, " ")


def _line_width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _word_width(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)
