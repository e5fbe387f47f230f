"""The discovered tables of a running query, in memory and in its checkpoint directory."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import InvalidOptionError
from streamlake.pipeline.sinks.discovered_tables import TABLES_PATH, tables_from_text, tables_to_bytes
from streamlake.pipeline.spark.checkpoint_file import CheckpointFile
from streamlake.pipeline.spark.query_identity import query_run


class DiscoveredTables:
    """The discovered tables of a query. `families`: a table's name -> the template that its rows filled."""

    def __init__(self, file: CheckpointFile, families: Mapping[str, str]) -> None:
        self._file = file
        self.families = dict(families)

    @staticmethod
    def of(frame: DataFrame, identity: CheckpointIdentity) -> DiscoveredTables:
        """The tables that the checkpoint directory of the query records. Raises DataInvalidError."""
        checkpoint = query_run(frame, identity.job_id).checkpoint
        file = CheckpointFile(frame.sparkSession, checkpoint, TABLES_PATH)
        text = file.read()
        return DiscoveredTables(
            file, {} if text is None else tables_from_text(text, f"{checkpoint.toString()}/{TABLES_PATH}")
        )

    def of_family(self, template: str) -> frozenset[str]:
        """The names of the discovered tables of one template."""
        return frozenset(name for name, family in self.families.items() if family == template)

    def add(self, found: Mapping[str, str]) -> None:
        """Record more tables. Raises InvalidOptionError for one that belongs to another template already."""
        for name, family in found.items():
            other = self.families.get(name, family)
            if other != family:
                raise InvalidOptionError(
                    f"the table '{name}' is named by rows of '{other}' and of '{family}', which are read "
                    "apart from each other; choose a template whose tables differ"
                )
        self.families.update(found)
        self._file.write(tables_to_bytes(self.families))
