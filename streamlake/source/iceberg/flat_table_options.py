"""IcebergSource as flat text options, the way Spark carries them: `spark.read.format(...).option(...)`.

Invariant: `source_of_options(options_of_source(source))` is a source that reads the same rows. Option names
are in lower case, because Spark does not keep their case; a catalog's properties may be given one by one
(`catalog.uri`), and travel as one JSON object, which keeps theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from streamlake.errors import InvalidOptionError
from streamlake.options import check_option_names
from streamlake.source.iceberg.iceberg_options import PROPERTIES
from streamlake.source.iceberg.iceberg_source import IcebergSource
from streamlake.spec.expressions.binding import to_expression
from streamlake.spec.expressions.expression_parser import parse_filter

_CATALOG = "catalog."
_ARGUMENTS = ("path", "catalog", "filter", "columns")
_SPARK_NAMES = {
    "stream-from-timestamp": "start-snapshot-timestamp",
    "streaming-max-files-per-micro-batch": "max-files-per-trigger",
    "streaming-max-rows-per-micro-batch": "max-rows-per-trigger",
    "streaming-skip-delete-snapshots": "on-delete",
    "streaming-skip-overwrite-snapshots": "on-delete",
    "file-open-cost": "split-file-open-cost",
    "lookback": "split-lookback",
    "start-timestamp": "start-snapshot-timestamp",
    "versionasof": "snapshot-id",
    "timestampasof": "as-of-timestamp",
}
"""Names of Iceberg's own Spark source (SparkReadOptions) and of Spark for what has another name here."""


def options_of_source(source: IcebergSource) -> dict[str, str]:
    """The options from which `source_of_options` makes the same source.

    Raises InvalidOptionError for a filter that cannot be written as text.
    """
    flat = {**source.options, "path": str(source.location)}
    if source.catalog is not None:
        flat["catalog"] = source.catalog if isinstance(source.catalog, str) else json.dumps(source.catalog)
    if source.columns is not None:
        flat["columns"] = json.dumps(list(source.columns))
    if source.filter is not None:
        flat["filter"] = _text(source)
    return flat


def source_of_options(options: Mapping[str, str]) -> IcebergSource:
    """The source of these options. Raises InvalidOptionError."""
    for name, meant in _SPARK_NAMES.items():
        if name in options:
            raise InvalidOptionError(f"unknown option '{name}'; here it is called '{meant}'")
    location = options.get("path")
    if not location:
        raise InvalidOptionError("the table is missing; give its location or its name to load()")
    known = [each.name for each in PROPERTIES]
    check_option_names(
        (name for name in options if not name.startswith(_CATALOG)), [*known, *_ARGUMENTS], "IcebergSource"
    )
    catalog = _catalog(options)
    return IcebergSource(
        location,
        catalog,
        options.get("filter"),
        _columns(options.get("columns")),
        {name: value for name, value in options.items() if name in known},
    )


def _catalog(options: Mapping[str, str]) -> str | dict[str, str] | None:
    given = options.get("catalog")
    parts = {name[len(_CATALOG) :]: value for name, value in options.items() if name.startswith(_CATALOG)}
    if given is not None and given.lstrip().startswith("{"):
        try:
            found = json.loads(given)
        except ValueError as error:
            raise InvalidOptionError(f"catalog is not JSON: {error}") from error
        return {**{str(name): str(value) for name, value in found.items()}, **parts}
    if given is not None and parts:
        raise InvalidOptionError(
            "catalog names a catalog of PyIceberg's configuration, and catalog.* describe one: give one of "
            "them"
        )
    return parts or given


def _columns(text: str | None) -> str | list[str] | None:
    if text is None or not text.lstrip().startswith("["):
        return text
    try:
        return [str(name) for name in json.loads(text)]
    except ValueError as error:
        raise InvalidOptionError(f"columns is not JSON: {error}") from error


def _text(source: IcebergSource) -> str:
    if isinstance(source.filter, str):
        return source.filter
    expression = to_expression(source.filter)
    text = str(expression)
    if parse_filter(text) != expression:
        raise InvalidOptionError(f"the filter {text!r} cannot be passed on as text; give it as text")
    return text
