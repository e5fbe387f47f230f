"""Errors on a line of a terminal, with the page of the docs that explains them."""

from __future__ import annotations

import re

from streamlake.errors import (
    CommitConflictError,
    CommitError,
    ConflictValidationError,
    DecodeError,
    FormatUpgradedError,
    HeadMovedError,
    InvalidOptionError,
    LineageError,
    NewSchemaError,
    NewSourceError,
    NewTablesError,
    NoRejectsTableError,
    OutdatedValuesError,
    SchemaMismatchError,
    StreamlakeError,
    UnknownArgumentError,
)

_PAGES = "docs/operating/errors"
_ON_THE_PAGE_OF: dict[type[StreamlakeError], type[StreamlakeError]] = {
    UnknownArgumentError: InvalidOptionError,
    NewSchemaError: SchemaMismatchError,
    NoRejectsTableError: DecodeError,
    CommitError: StreamlakeError,
    NewTablesError: StreamlakeError,
    NewSourceError: StreamlakeError,
    HeadMovedError: ConflictValidationError,
    FormatUpgradedError: ConflictValidationError,
    OutdatedValuesError: CommitConflictError,
}
"""Errors without a page of their own: classes that are never raised themselves, and errors that the driver
handles.
"""


def describe(error: BaseException) -> str:
    """One line for an error: its message, with its kind where that helps, and the page that explains it.

    A LineageError has a line for each way out.
    """
    text = " ".join(str(error).split())
    if isinstance(error, LineageError):
        text = "\n".join(line.rstrip() for line in str(error).splitlines() if line.strip())
    if isinstance(error, StreamlakeError):
        return f"{text} [{type(error).__name__}: {page_of(type(error))}]"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    kind = type(error).__name__
    return f"{kind}: {text[:500]} (--debug shows where)" if text else f"{kind} (--debug shows where)"


def page_of(error: type[StreamlakeError]) -> str:
    """The page of the docs that explains an error of this class."""
    explained = _ON_THE_PAGE_OF.get(error, error)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", explained.__name__).lower()
    return f"{_PAGES}/{name}.md"
