"""What a command prints on a terminal of a given width: stdout is a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """Lines as the terminal got them, without colours and without blanks at their ends."""

    text = ""

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


@contextmanager
def pseudo_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """Context manager: stdout is a terminal of so many columns; its end fills the screen."""
    screen = Screen()
    chunks: list[bytes] = []
    above, below = pty.openpty()
    reader = threading.Thread(target=_read, args=(above, chunks))
    reader.start()
    try:
        with monkeypatch.context() as patch, os.fdopen(below, "w", encoding="utf-8") as stdout:
            patch.setattr(sys, "stdout", stdout)
            patch.setenv("COLUMNS", str(width))
            patch.setenv("LINES", "50")
            patch.setenv("TERM", "xterm")
            assert stdout.isatty()
            yield screen
            stdout.flush()
    finally:
        reader.join()
        os.close(above)
    text = _ESCAPES.sub("", b"".join(chunks).decode())
    screen.text = "".join(f"{line.rstrip()}\n" for line in text.replace("\r\n", "\n").splitlines())


def _read(above: int, chunks: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(above, 65536)
        except OSError:  # the other end is closed
            return
        if not chunk:
            return
        chunks.append(chunk)
