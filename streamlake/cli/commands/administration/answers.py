"""What the commands of administration ask and answer: a confirmation, a sentence or JSON, a table to open."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import typer

from streamlake.cli.arguments import option_value, parse_catalog
from streamlake.cli.views.rendering import json_text
from streamlake.commit.marker import PROPERTY_PREFIX, parsed_property
from streamlake.errors import DataInvalidError, InvalidOptionError
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.types.data_types import (
    BooleanType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
)
from streamlake.spec.types.values import from_json_value
from streamlake.tables import LoadedTable, load_table


def opened(location: str, catalog: str | None) -> LoadedTable:
    """The table that a command is about."""
    return load_table(location, catalog=parse_catalog(catalog))


def confirmed(plan: str, *, yes: bool, as_json: bool) -> bool:
    """Whether to do what `plan` says: with --yes, or because somebody at the terminal agrees."""
    if yes:
        return True
    shown = sys.stderr if as_json else sys.stdout
    shown.write(f"{plan}\n")
    if sys.stdin.isatty() and typer.confirm("Do it?"):
        return True
    shown.write("Nothing was done yet; run this again with --yes.\n")
    return False


def answer(sentence: str, content: Any, *, as_json: bool) -> int:
    """Print what was done; the exit code."""
    sys.stdout.write((json_text(content) if as_json else sentence) + "\n")
    return 0


def pairs(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """The values of a repeated option NAME=VALUE. Raises InvalidOptionError."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidOptionError(f"{option} '{text}' is not of the form name=value")
        found[name.strip()] = option_value(value.strip(), f"{option} {name.strip()}")
    return found


def names(text: str | None) -> tuple[str, ...]:
    """The names in "a,b"."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def streams_of(metadata: TableMetadata, branch: str) -> list[str]:
    """The pipelines that have written a branch, as the table's properties say."""
    found = []
    for name in metadata.properties:
        if name.startswith(PROPERTY_PREFIX):
            try:
                recorded = parsed_property(metadata, name)
            except DataInvalidError:
                continue
            if recorded is not None and recorded.branch == branch:
                found.append(recorded.pipeline)
    return sorted(found)


def stream_warning(metadata: TableMetadata, branch: str) -> str:
    """What a rollback of a branch means for its streams; "" where there are none."""
    found = streams_of(metadata, branch)
    if not found:
        return ""
    listed = ", ".join(f"'{name}'" for name in found)
    return (
        f" Streams have written this branch ({listed}): stop them first; they are refused then, and "
        "`streamlake recover` has the ways out."
    )


def listed_properties(properties: Mapping[str, str]) -> str:
    """Properties as lines, sorted."""
    return "\n".join(f"{name}={properties[name]}" for name in sorted(properties)) or "no properties"


def default_value(type_: IcebergType, text: str) -> Any:
    """The value of a column that a text stands for: 5, true, 2024-01-31, any text for a string column."""
    plain = isinstance(type_, (BooleanType, IntegerType, LongType, FloatType, DoubleType))
    try:
        return from_json_value(type_, json.loads(text) if plain else text)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise InvalidOptionError(f"--default: {text!r} is no {type_} ({error})") from error
