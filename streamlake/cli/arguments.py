"""What several commands take on their command line, from text to values."""

from __future__ import annotations

from collections.abc import Sequence

from streamlake.errors import InvalidOptionError


def option_pairs(options: Sequence[str]) -> dict[str, str]:
    """The values of a repeated `--option NAME=VALUE`."""
    wrong = [text for text in options if "=" not in text]
    if wrong:
        raise InvalidOptionError(f"--option '{wrong[0]}' is not of the form name=value")
    return {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in options)}
