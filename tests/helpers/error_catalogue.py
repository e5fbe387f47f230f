"""The messages that docs/operating/errors shows, compared with those that tests produce."""

from __future__ import annotations

import re
from pathlib import Path

_PAGES = Path(__file__).parents[2] / "docs" / "operating" / "errors"
_EXAMPLE = re.compile(r"""[0-9/'"{}\[\]]|\.\.\.|^orders$|^region,""")
"""A word of a documented message that is an example: a number, a path, a name in quotes, or left out."""


def documented(page: str, error: BaseException | str) -> None:
    """Assert that `error` is what the page shows, example values apart."""
    found = " ".join(str(error).split())
    shown = shown_message(page)
    pattern = "".join(_expression(word) for word in shown.split())
    assert re.fullmatch(pattern, found), f"{page}.md shows:\n{shown}\nthe test has:\n{found}"


def shown_message(page: str) -> str:
    """The message on a page, without the command line's `error:` and the reference to the page."""
    text = (_PAGES / f"{page}.md").read_text(encoding="utf-8")
    [message] = re.findall(
        r"```\nerror: (.*?) \[\w+: docs/operating/errors/[\w-]+\.md\]\n```", text, re.DOTALL
    )
    return str(message)


def _expression(word: str) -> str:
    if word == "...":
        return r"(?:\S+ ?)*?"
    return r"\S+(?: \S+)*? ?" if _EXAMPLE.search(word) else re.escape(word) + " ?"
