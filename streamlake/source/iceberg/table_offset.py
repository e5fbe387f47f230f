"""Offsets into an Iceberg table: how far a stream has read it, and what planning depends on, as JSON.

The JSON goes into the checkpoint's offset log, so its format outlives a release and has a version. Invariant:
equal offsets have equal JSON, because Spark compares the text to see whether there is anything new.

A position within a snapshot counts all of its files, also those that the filter leaves out. So it means the
same whatever a later version of streamlake leaves out, and a filter may change while a snapshot is half read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamlake.errors import SourceError

VERSION = 1
_END = 1 << 62


class FilePosition(NamedTuple):
    """The next thing to read of a snapshot: the number of the file in planning order, and of its part."""

    file: int = 0
    part: int = 0


@dataclass(frozen=True)
class Pairing:
    """How read-mode=changes puts together what a snapshot removed and what it added.

    `key_ids` are the field ids of the columns that identify a row (none: it is its row id, if there are any),
    `has_row_ids`: changes have row ids, `has_updates`: the old and the new values of a row are an update,
    `is_net`: the snapshots of a micro-batch are netted together.
    """

    key_ids: tuple[int, ...] = ()
    has_row_ids: bool = False
    has_updates: bool = True
    is_net: bool = False

    def to_json(self) -> dict[str, Any]:
        """The JSON object, without what has its default."""
        value: dict[str, Any] = {}
        if self.key_ids:
            value["keys"] = list(self.key_ids)
        if self.has_row_ids:
            value["row-ids"] = True
        if not self.has_updates:
            value["updates"] = False
        if self.is_net:
            value["net"] = True
        return value

    @staticmethod
    def from_json(value: dict[str, Any]) -> Pairing:
        """The inverse of `to_json`."""
        return Pairing(
            key_ids=tuple(int(each) for each in value.get("keys", ())),
            has_row_ids=bool(value.get("row-ids", False)),
            has_updates=bool(value.get("updates", True)),
            is_net=bool(value.get("net", False)),
        )


@dataclass(frozen=True)
class SplitPlanning:
    """What planning depends on, beside the table's own files.

    `filter_digest` ("" without a filter) tells filters from each other, `schema_id` is the schema that rows
    are read with, `order_by` the field id of the watermark column (None: table order), `read_mode` as the
    option has it, `pairing` how rows are paired with read-mode=changes. Sizes are in bytes.
    """

    filter_digest: str
    schema_id: int
    split_size: int
    split_lookback: int
    split_file_open_cost: int
    order_by: int | None = None
    read_mode: str = "append"
    pairing: Pairing = Pairing()

    def to_json(self) -> dict[str, Any]:
        """The JSON object, without what has its default."""
        value: dict[str, Any] = {
            "schema-id": self.schema_id,
            "split-size": self.split_size,
            "split-lookback": self.split_lookback,
            "split-file-open-cost": self.split_file_open_cost,
        }
        if self.filter_digest:
            value["filter"] = self.filter_digest
        if self.order_by is not None:
            value["order-by"] = self.order_by
        if self.read_mode != "append":
            value["read-mode"] = self.read_mode
        if self.pairing != Pairing():
            value["pairing"] = self.pairing.to_json()
        return value

    @staticmethod
    def from_json(value: dict[str, Any]) -> SplitPlanning:
        """The inverse of `to_json`."""
        return SplitPlanning(
            filter_digest=value.get("filter", ""),
            schema_id=int(value["schema-id"]),
            split_size=int(value["split-size"]),
            split_lookback=int(value["split-lookback"]),
            split_file_open_cost=int(value["split-file-open-cost"]),
            order_by=value.get("order-by"),
            read_mode=value.get("read-mode", "append"),
            pairing=Pairing.from_json(value.get("pairing", {})),
        )


@dataclass(frozen=True)
class SnapshotPosition:
    """A place in a table's history: after a snapshot, or in the middle of one.

    `snapshot_id` None: before the table's first snapshot. `within` None: after the whole snapshot.
    `is_scan`: the snapshot is read in full, with all that earlier ones have left, and not only what it added.
    `sequence_number` is the snapshot's, where it was known.
    """

    snapshot_id: int | None
    within: FilePosition | None = None
    is_scan: bool = False
    sequence_number: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON object, without what has its default."""
        value: dict[str, Any] = {"snapshot-id": self.snapshot_id}
        if self.sequence_number is not None:
            value["sequence-number"] = self.sequence_number
        if self.within is not None:
            value["position"] = list(self.within)
        if self.is_scan:
            value["scan"] = True
        return value

    @staticmethod
    def from_json(value: dict[str, Any]) -> SnapshotPosition:
        """The inverse of `to_json`."""
        within = value.get("position")
        return SnapshotPosition(
            value["snapshot-id"],
            None if within is None else FilePosition(int(within[0]), int(within[1])),
            bool(value.get("scan", False)),
            value.get("sequence-number"),
        )


@dataclass(frozen=True)
class TableOffset:
    """How far a stream has read a table. Immutable.

    `step` counts the snapshots that the stream has come to, so that offsets of one stream are ordered without
    the table. `start` is where reading begins, in the first offset of a checkpoint only: a replay of the
    first micro-batch then means the same snapshots, whatever starting-strategy would choose by then. `lost`:
    so many snapshots, or more, expired before they were read, and this offset passes over them. `ordinal`: so
    many snapshots have been read in full as changes; it is the number of the next one.
    """

    table_uuid: str
    position: SnapshotPosition
    step: int
    planning: SplitPlanning
    start: SnapshotPosition | None = None
    lost: int = 0
    ordinal: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """What offsets of one stream are ordered by."""
        within = self.position.within
        return (self.step, *(within if within is not None else (_END, 0)))

    def to_json(self) -> dict[str, Any]:
        """The JSON object that is stored."""
        value: dict[str, Any] = {
            "version": VERSION,
            "table-uuid": self.table_uuid,
            **self.position.to_json(),
            "step": self.step,
            "planning": self.planning.to_json(),
        }
        if self.start is not None:
            value["start"] = self.start.to_json()
        if self.lost:
            value["lost"] = self.lost
        if self.ordinal:
            value["ordinal"] = self.ordinal
        return value

    def to_text(self) -> str:
        """The text of `to_json()`, the same for equal offsets."""
        return json.dumps(self.to_json())

    @staticmethod
    def from_json(value: Any) -> TableOffset:
        """The offset of a JSON object from `to_json`. Raises SourceError for any other value."""
        try:
            version = value["version"]
            if isinstance(version, int) and version > VERSION:
                raise SourceError(
                    f"the checkpoint holds offsets of version {version} of a table, and {VERSION} is the "
                    "newest that is known here: go on with the version of streamlake that has written them"
                )
            return TableOffset(
                str(value["table-uuid"]),
                SnapshotPosition.from_json(value),
                int(value["step"]),
                SplitPlanning.from_json(value["planning"]),
                SnapshotPosition.from_json(value["start"]) if "start" in value else None,
                int(value.get("lost", 0)),
                int(value.get("ordinal", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise SourceError(
                "the checkpoint holds source offsets that are not of an Iceberg table: "
                f"{json.dumps(value, default=str)[:200]}; it belongs to another source: use another "
                f"checkpoint "
                "location"
            ) from error
