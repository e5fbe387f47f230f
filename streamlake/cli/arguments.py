"""Parses arguments that several commands share.

A command line can be read by everyone on the machine, and stays in the shell's history. So secrets are given
as `@FILE` or `${NAME}`, and read here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from streamlake.errors import InvalidOptionError
from streamlake.pipeline.definition.environment import substituted

_PIPELINE_FILES = (".yaml", ".yml")


def is_pipeline_file(what: str) -> bool:
    """Whether an argument that names a pipeline file or a table names a file."""
    return what.endswith(_PIPELINE_FILES) or Path(what).is_file()


def option_pairs(options: Sequence[str]) -> dict[str, str]:
    """The values of a repeated `--option NAME=VALUE`; see `option_value`."""
    wrong = [text for text in options if "=" not in text]
    if wrong:
        raise InvalidOptionError(f"--option '{wrong[0]}' is not of the form name=value")
    pairs = [text.partition("=") for text in options]
    return {name.strip(): option_value(value.strip(), f"--option {name.strip()}") for name, _, value in pairs}


def parse_catalog(text: str | None, where: str = "--catalog") -> str | Mapping[str, str] | None:
    """A catalog's name, or "key=value,key=value" as its properties; see `option_value`."""
    if text is None or "=" not in text:
        return text
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise InvalidOptionError(f"{where}: '{wrong[0]}' is not of the form key=value")
    return {name.strip(): option_value(value.strip(), f"{where} {name.strip()}") for name, _, value in pairs}


def option_value(text: str, where: str) -> str:
    """The value that an argument stands for.

    `@FILE` is the content of the file, without the line's end; `@@` begins a text that begins with @;
    `${NAME}` is replaced by that environment variable. Raises InvalidOptionError.
    """
    if text.startswith("@@"):
        return text[1:]
    if not text.startswith("@"):
        return str(substituted(text, where, os.environ))
    try:
        return Path(text[1:]).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise InvalidOptionError(f"{where}: the file {text[1:]} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidOptionError(f"{where}: the file {text[1:]} is not UTF-8 text") from error
