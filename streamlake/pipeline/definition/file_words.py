"""Messages in the words of a pipeline file, whose keys have dashes where Python has underscores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature

from streamlake.errors import StreamlakeError
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.pipeline.sinks.tables_sink import IcebergTables

_ARGUMENTS = sorted(
    {*signature(IcebergSink).parameters, *signature(IcebergTables).parameters} - {"settings", "on_commit"},
    key=len,
    reverse=True,
)
_NAMES = "|".join(_ARGUMENTS)
_VALUES = {"True": "true", "False": "false"}
_GIVEN = re.compile(rf"(?<![\w-])({_NAMES})=('[^']*'|\"[^\"]*\"|\[\.\.\.\]|True|False|[\w-]+)")
_NAMED = re.compile(rf"(?<![\w./'\"-])({'|'.join(name for name in _ARGUMENTS if '_' in name)})(?![\w/-])")


def in_file_words(text: str) -> str:
    """A message of a sink with the keys of a pipeline file: `on_error='reject'` as `on-error: reject`."""
    text = _GIVEN.sub(_pair, text)
    return _NAMED.sub(lambda found: found[1].replace("_", "-"), text)


@contextmanager
def file_words() -> Iterator[None]:
    """Context manager: streamlake's errors that are raised inside speak the words of a pipeline file."""
    try:
        yield
    except StreamlakeError as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (in_file_words(error.args[0]), *error.args[1:])
        raise


def _pair(found: re.Match[str]) -> str:
    value = found[2].strip("'\"")
    return f"{found[1].replace('_', '-')}: {_VALUES.get(value, value)}"
