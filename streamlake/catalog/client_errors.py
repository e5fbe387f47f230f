"""The errors of catalog clients, sorted by what they mean.

Clients are optional, so their types go by their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamlake.errors import (
    FeatureUnsupportedError,
    InvalidOptionError,
    StorageError,
    StreamlakeError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

CONFLICTS = ("CommitFailedException", "WaitingForLockException")
REFUSALS = (
    "BadRequestError",
    "UnauthorizedError",
    "ForbiddenError",
    "OAuthError",
    "AuthorizationExpiredError",
)
OUTAGES = ("ServerError", "ServiceUnavailableError", "TooManyRequestsError", "OperationalError")
NOT_THERE = ("NoSuchTableError", "NoSuchIcebergTableError", "NoSuchNamespaceError", "NoSuchIdentifierError")
CLIENT_LIMIT = (
    "this kind of catalog leaves writing metadata files to its client, which does not know the feature: use "
    "format version 2, or a catalog of another kind"
)


def is_outage(error: Exception) -> bool:
    """Whether the error means that the service is unavailable at present.

    Clients already send requests when they are made.
    """
    unreachable = isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
    return unreachable or type(error).__name__ in OUTAGES


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Turn what a client raises while it does `action`, which changes no table, into a StreamlakeError."""
    try:
        yield
    except StreamlakeError:
        raise
    except Exception as error:
        kind = type(error).__name__
        if kind == "NoSuchNamespaceError":
            raise TableNotFoundError(
                f"{action}: {error}; check the name, or create the namespace (`streamlake namespace create`)"
            ) from error
        if kind == "NamespaceAlreadyExistsError":
            raise TableAlreadyExistsError(f"{action}: {error}; use it, or choose another name") from error
        if kind == "NamespaceNotEmptyError":
            raise InvalidOptionError(f"{action}: {error}; drop or rename its tables first") from error
        if kind in NOT_THERE:
            raise TableNotFoundError(f"{action}: {error}; check the name, or create the table") from error
        if kind == "TableAlreadyExistsError":
            raise TableAlreadyExistsError(f"{action}: {error}; load it, or choose another name") from error
        if isinstance(error, NotImplementedError):
            raise FeatureUnsupportedError(f"{action}: {error}; {CLIENT_LIMIT}") from error
        raise StorageError(f"{action}: {kind}: {error}") from error
