"""The tables that a query has met by its rows, in its checkpoint directory.

What rows name is nowhere else: a driver that starts has to open all of these, because one may have something staged, and the
commands that look at a pipeline learn from here which tables it has. Invariant: a name is kept here before anything is
made or written for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import DataInvalidError, InvalidOptionError
from streamlake.pipeline.checkpoint_file import CheckpointFile
from streamlake.pipeline.query_identity import query_run

TABLES_PATH = "streamlake/tables.json"


class KnownTables:
    """`families`: table's name -> the template that its rows have filled."""

    def __init__(self, file: CheckpointFile, families: Mapping[str, str]) -> None:
        self._file = file
        self.families = dict(families)

    @staticmethod
    def of(frame: DataFrame, identity: CheckpointIdentity) -> KnownTables:
        """What the checkpoint directory of the query tells. Raises DataInvalidError."""
        checkpoint = query_run(frame, identity.job_id).checkpoint
        file = CheckpointFile(frame.sparkSession, checkpoint, TABLES_PATH)
        text = file.read()
        return KnownTables(
            file, {} if text is None else tables_from_text(text, f"{checkpoint.toString()}/{TABLES_PATH}")
        )

    def of_family(self, template: str) -> frozenset[str]:
        return frozenset(name for name, family in self.families.items() if family == template)

    def add(self, found: Mapping[str, str]) -> None:
        """Keep more tables. Raises InvalidOptionError for one that is another template's already."""
        for name, family in found.items():
            other = self.families.get(name, family)
            if other != family:
                raise InvalidOptionError(
                    f"the table '{name}' is named by rows of '{other}' and of '{family}', which are read apart from each other; "
                    "choose a template whose tables differ"
                )
        self.families.update(found)
        self._file.replace(tables_to_bytes(self.families))


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
