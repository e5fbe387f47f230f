"""The README and the pages below docs/, taken apart: code blocks, links, headings."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.spark import ROOT

README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = (README, *sorted(DOCS.rglob("*.md")))

_FENCE = re.compile(
    r"^(?P<fragment><!-- fragment -->\n+)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `is_fragment` where the page marks it as a part of something."""

    page: Path
    line: int
    language: str
    text: str
    is_fragment: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str) -> list[Block]:
    """The blocks of a page in one language, in their order."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(
            page,
            text.count("\n", 0, match.start("language")) + 2,
            match["language"],
            match["text"],
            match["fragment"] is not None,
        )
        for match in _FENCE.finditer(text)
    ]
    return [block for block in found if block.language == language]


def links(page: Path) -> list[str]:
    """The targets of a page's links and pictures, without those that lead to other sites."""
    return [target for target in _LINK.findall(_prose(page)) if not re.match(r"\w+:", target)]


def anchors(page: Path) -> set[str]:
    """The names that headings of a page have as targets of links."""
    return {_slug(heading) for heading in _HEADING.findall(_prose(page))}


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _slug(heading: str) -> str:
    """As Markdown's table of contents makes it, and GitHub but for rare characters."""
    text = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())
