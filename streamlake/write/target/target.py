"""The WriteTarget: everything that a writer task needs to know about its table and checkpoint.

Frozen; made on the driver, pickled to executors.

Invariant: it is the same for every task and every attempt of a checkpoint. What differs (partition, task,
attempt) comes from the task itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamlake.errors import DataInvalidError, InvalidOptionError
from streamlake.formats.columns.name_mapping import NAME_MAPPING_PROPERTY
from streamlake.spec.metadata.table_metadata import TableMetadata
from streamlake.spec.partitioning.partition_spec import UNPARTITIONED, PartitionSpec
from streamlake.spec.partitioning.sort_order import UNSORTED, SortOrder
from streamlake.spec.types.schema import Schema
from streamlake.storage.file_io import FileIO
from streamlake.storage.locations import TableLocations
from streamlake.write.target.options import WriteOptions

FANOUT = "fanout"
CLUSTERED = "clustered"


@dataclass(frozen=True)
class WriteTarget:
    """A table as its writers see it, and the checkpoint they write for.

    `operation_uuid` is new for every run of a checkpoint, so that files of a replay never have the names of
    the first run's. `specs` are all partition specs of the table, which deletes need; `spec` is the one that
    rows are written by. `input_order` is "fanout" (rows of partitions in any order) or "clustered" (all rows
    of a partition of a task come together, and a partition that returns is an error).
    """

    locations: TableLocations
    io: FileIO
    schema: Schema
    job_id: str
    checkpoint_id: int
    operation_uuid: str
    spec: PartitionSpec = UNPARTITIONED
    specs: tuple[PartitionSpec, ...] = ()
    sort_order: SortOrder = UNSORTED
    format_version: int = 2
    options: WriteOptions = field(default_factory=WriteOptions)
    input_order: str = FANOUT
    name_mapping: str | None = None

    def __post_init__(self) -> None:
        if self.input_order not in (FANOUT, CLUSTERED):
            raise InvalidOptionError(
                f"input_order is '{self.input_order}'; it is '{FANOUT}' or '{CLUSTERED}'"
            )

    @property
    def location(self) -> str:
        """The table's location, for messages."""
        return self.locations.location

    def spec_by_id(self, spec_id: int) -> PartitionSpec:
        """A partition spec of the table. Raises DataInvalidError for an unknown id."""
        for spec in (self.spec, *self.specs):
            if spec.spec_id == spec_id:
                return spec
        raise DataInvalidError(
            f"{self.location}: a data file of partition spec {spec_id}, which the table does not have; its "
            "metadata is damaged, or the table was replaced while it was written"
        )

    @staticmethod
    def for_table(
        metadata: TableMetadata,
        *,
        io: FileIO,
        job_id: str,
        checkpoint_id: int,
        operation_uuid: str,
        input_order: str = FANOUT,
        properties: Mapping[str, str] | None = None,
    ) -> WriteTarget:
        """The target for a table's current schema, spec and sort order.

        `properties` override the table's own. Raises InvalidOptionError for a property with an invalid value.
        """
        merged = {**metadata.properties, **(properties or {})}
        return WriteTarget(
            locations=TableLocations(metadata.location, merged),
            io=io,
            schema=metadata.schema,
            job_id=job_id,
            checkpoint_id=checkpoint_id,
            operation_uuid=operation_uuid,
            spec=metadata.spec,
            specs=tuple(metadata.specs),
            sort_order=metadata.sort_order,
            format_version=metadata.format_version,
            options=WriteOptions.from_properties(merged),
            input_order=input_order,
            name_mapping=merged.get(NAME_MAPPING_PROPERTY),
        )
