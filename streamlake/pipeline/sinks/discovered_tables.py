"""The file of the discovered tables: those that a query's rows have named, in its checkpoint directory.

The names that rows carry are recorded nowhere else. A driver that starts has to open all of these tables,
because one may have something staged, and the commands that inspect a pipeline learn here which tables it
has. Invariant: a name is recorded here before anything is created or written for it.
No Spark in here: commands that only inspect a pipeline start quickly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from streamlake.errors import DataInvalidError

TABLES_PATH = "streamlake/tables.json"


def tables_to_bytes(families: Mapping[str, str]) -> bytes:
    """The file's content, as JSON: each table's name with the template that its rows have filled."""
    return json.dumps({"tables": dict(sorted(families.items()))}, indent=1, ensure_ascii=False).encode()


def tables_from_text(text: str, where: str) -> dict[str, str]:
    """The inverse of `tables_to_bytes`. Raises DataInvalidError for a damaged file: without its names, what
    was staged for the tables would be forgotten.
    """
    try:
        return {str(name): str(family) for name, family in json.loads(text)["tables"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataInvalidError(
            f"{where}, which names the tables that rows have gone into, is damaged ({error!r}); restore it "
            f"from a copy, or write it "
            'anew as {"tables": {"lake/events_de": "lake/events_{row.country}"}}'
        ) from error
