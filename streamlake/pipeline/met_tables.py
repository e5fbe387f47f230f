"""The tables that one query has met by its rows, in memory and in its checkpoint directory; see `known_tables`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import InvalidOptionError
from streamlake.pipeline.checkpoint_file import CheckpointFile
from streamlake.pipeline.known_tables import TABLES_PATH, tables_from_text, tables_to_bytes
from streamlake.pipeline.query_identity import query_run


class MetTables:
    """`families`: table's name -> the template that its rows have filled."""

    def __init__(self, file: CheckpointFile, families: Mapping[str, str]) -> None:
        self._file = file
        self.families = dict(families)

    @staticmethod
    def of(frame: DataFrame, identity: CheckpointIdentity) -> MetTables:
        """What the checkpoint directory of the query tells. Raises DataInvalidError."""
        checkpoint = query_run(frame, identity.job_id).checkpoint
        file = CheckpointFile(frame.sparkSession, checkpoint, TABLES_PATH)
        text = file.read()
        return MetTables(
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
        self._file.write(tables_to_bytes(self.families))
