"""Column names in the form that Spark's expressions need."""

from __future__ import annotations


def quoted(name: str) -> str:
    """The name between backticks, so that dots and blanks in it are part of it."""
    return "`" + name.replace("`", "``") + "`"
