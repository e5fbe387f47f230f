"""The tables that a query has met by its rows, in its checkpoint directory.

What rows name is nowhere else: a driver that starts has to open all of these, because one may have something staged, and the
commands that look at a pipeline learn from here which tables it has. Invariant: a name is kept here before anything is
made or written for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from streamlake.errors import DataInvalidError

TABLES_PATH = "streamlake/tables.json"


def tables_to_bytes(families: Mapping[str, str]) -> bytes:
    return json.dumps({"tables": dict(sorted(families.items()))}, indent=1, ensure_ascii=False).encode()


def tables_from_text(text: str, where: str) -> dict[str, str]:
    """The inverse. Raises DataInvalidError: what was staged for tables would be forgotten."""
    try:
        return {str(name): str(family) for name, family in json.loads(text)["tables"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataInvalidError(
            f"{where}, which names the tables that rows have gone into, is damaged ({error!r}); restore it from a copy, or write it "
            'anew as {"tables": {"lake/events_de": "lake/events_{row.country}"}}'
        ) from error
