"""What the errors of AWS's services say about a request: done, not done, or neither."""

from __future__ import annotations

from typing import Any

from streamlake.errors import StorageError, StreamlakeError


def error_code(error: Exception) -> str:
    """The code in a service's answer, such as `EntityNotFoundException`; "" where there was no answer."""
    return str(_answer(error).get("Error", {}).get("Code", ""))


def refusal(error: Exception, message: str) -> StreamlakeError | None:
    """The error to raise if the service refused a request that was sent once; None if it may be done.

    A client repeats requests by itself: then only the last answer is known, and an earlier one may have been
    lost.
    """
    about = _answer(error).get("ResponseMetadata", {})
    status, repeated = int(about.get("HTTPStatusCode", 0)), int(about.get("RetryAttempts", 0))
    if not 400 <= status < 500 or repeated:
        return None
    return StorageError(
        f"{message}: {error} (the service refused; check the catalog's credentials and permissions)"
    )


def _answer(error: Exception) -> dict[str, Any]:
    return getattr(error, "response", None) or {}
