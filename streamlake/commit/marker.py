"""Commit markers: a commit records its checkpoint in the snapshot's summary and in a table property.

One commit writes both, the property outlives the snapshot, and `history` reads both. The property also
carries the fence: which driver wrote it, and how many drivers had the pipeline before. Invariant: a driver
whose fence is behind the table's never commits again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from streamlake import ids
from streamlake.checkpoint.identity import CheckpointIdentity, offsets_digest
from streamlake.commit.offset_summary import first_summary, offsets_summary
from streamlake.errors import DataInvalidError
from streamlake.spec.metadata.snapshot import MAIN_BRANCH
from streamlake.spec.metadata.table_metadata import TableMetadata

JOB_ID = "streamlake.job-id"
MAX_COMMITTED_CHECKPOINT_ID = "streamlake.max-committed-checkpoint-id"
PIPELINE = "streamlake.pipeline"
OFFSETS_DIGEST = "streamlake.offsets-digest"
FIRST_DIGEST = "streamlake.first-offsets-digest"
KEY_IDS = "streamlake.key-ids"
SEQUENCE_IDS = "streamlake.sequence-ids"
INDEX_STATE = "streamlake.index-state"
POSITION_MAP = "streamlake.position-map"
"""In the summary of a compaction: the position map of the files that it replaced, see PositionMapRef."""
PROPERTY_PREFIX = "streamlake.pipeline."
REPLAY_JOB_PREFIX = "replay-"
"""The job ids of replays of rejected records begin so."""


@dataclass(frozen=True)
class Marker:
    """The last checkpoint of one job that a table holds.

    `snapshot_id` is None where only the property records it.
    """

    job_id: str
    checkpoint_id: int
    offsets_digest: str
    snapshot_id: int | None

    @staticmethod
    def of(identity: CheckpointIdentity) -> Marker:
        """The marker of a checkpoint that is about to be committed."""
        return Marker(identity.job_id, identity.checkpoint_id, identity.offsets_digest, None)


@dataclass(frozen=True)
class Fence:
    """The right to commit. A driver takes the epoch after the one that it finds when it starts.

    Of two drivers with the same epoch, the first to commit keeps the right; `holder` distinguishes them.
    """

    epoch: int
    holder: str

    def is_behind(self, other: Fence) -> bool:
        """Whether the driver with this fence has lost the pipeline to the one that wrote `other`."""
        return other.epoch >= self.epoch and other.holder != self.holder


@dataclass(frozen=True)
class PipelineProperty:
    """A pipeline's table property: its `name`, its branch, and what it records.

    `sequence_number` is that of the snapshot which holds the checkpoint (None: not recorded), `index_state`
    the path of its key index, if any, and `index_number` the sequence number of the snapshot that this index
    belongs to.
    """

    name: str
    branch: str
    marker: Marker
    fence: Fence
    key_ids: tuple[int, ...]
    sequence_number: int | None = None
    index_state: str | None = None
    index_number: int | None = None

    @property
    def pipeline(self) -> str:
        """The pipeline that the property is of."""
        name = self.name.removeprefix(PROPERTY_PREFIX)
        return name if self.branch == MAIN_BRANCH else name.removesuffix(f"@{self.branch}")


def property_name(pipeline: str, branch: str) -> str:
    """The name of a pipeline's table property; branches other than main have their own."""
    return f"{PROPERTY_PREFIX}{pipeline}" + ("" if branch == MAIN_BRANCH else f"@{branch}")


def marker_summary(identity: CheckpointIdentity) -> dict[str, str]:
    """The summary entries of a checkpoint's snapshot: where the checkpoint begins and where it ends.

    Of long offsets only the digests are kept. The digest of the start equals that of the previous commit's
    end, unless checkpoints without rows lie between.
    """
    return {
        JOB_ID: identity.job_id,
        MAX_COMMITTED_CHECKPOINT_ID: str(identity.checkpoint_id),
        PIPELINE: identity.pipeline,
        OFFSETS_DIGEST: identity.offsets_digest,
        FIRST_DIGEST: offsets_digest(identity.start_offsets),
        **first_summary(identity.start_offsets, identity.end_offsets),
        **offsets_summary(identity.start_offsets, identity.end_offsets),
    }


def key_summary(key_ids: Sequence[int], sequence_ids: Sequence[int]) -> dict[str, str]:
    """The summary entries of a snapshot whose rows were replaced by key: field ids; else empty."""
    recorded = {KEY_IDS: key_ids, SEQUENCE_IDS: sequence_ids}
    return {name: ",".join(map(str, field_ids)) for name, field_ids in recorded.items() if field_ids}


def marker_property(
    pipeline: str,
    branch: str,
    marker: Marker,
    fence: Fence,
    key_ids: Sequence[int] = (),
    sequence_number: int | None = None,
    index_state: str | None = None,
    index_number: int | None = None,
) -> dict[str, str]:
    """The table property that a checkpoint's commit sets.

    The commit's snapshot has this sequence number and names this key index, unless `index_number` is given:
    that is the number of an older snapshot which names it.
    """
    value: dict[str, str | int | list[int]] = {
        "job-id": marker.job_id,
        "checkpoint-id": marker.checkpoint_id,
        "offsets-digest": marker.offsets_digest,
        "epoch": fence.epoch,
        "holder": fence.holder,
    }
    if sequence_number is not None:
        value["sequence-number"] = sequence_number
    if index_state is not None:
        value["index-state"] = index_state
    if index_number is not None:
        value["index-sequence-number"] = index_number
    if key_ids:
        value["key-ids"] = list(key_ids)
    if branch != MAIN_BRANCH:
        value["branch"] = branch
    return {property_name(pipeline, branch): json.dumps(value)}


def parsed_property(metadata: TableMetadata, name: str) -> PipelineProperty | None:
    """The table property `name`, parsed; None where it is not set.

    Raises DataInvalidError where it is damaged.
    """
    text = metadata.properties.get(name)
    if text is None:
        return None
    try:
        obj = json.loads(text)
        number = obj.get("sequence-number")
        index_number = obj.get("index-sequence-number", number)
        return PipelineProperty(
            name,
            str(obj.get("branch", MAIN_BRANCH)),
            Marker(obj["job-id"], int(obj["checkpoint-id"]), obj["offsets-digest"], None),
            Fence(int(obj.get("epoch", 0)), str(obj.get("holder", ""))),
            tuple(int(field_id) for field_id in obj.get("key-ids", ())),
            None if number is None else int(number),
            obj.get("index-state"),
            None if index_number is None else int(index_number),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataInvalidError(
            f"the table property '{name}' of {metadata.location} is damaged: {text!r}; set it to what an "
            "earlier metadata file of the table has"
        ) from error


def properties_of_job(metadata: TableMetadata, job_id: str) -> list[PipelineProperty]:
    """The properties that record a job, on whatever branch and whatever its pipeline is or was called."""
    found = (
        parsed_property(metadata, name)
        for name, text in metadata.properties.items()
        if name.startswith(PROPERTY_PREFIX) and job_id in text
    )
    return [recorded for recorded in found if recorded is not None and recorded.marker.job_id == job_id]


def properties_on_branch(metadata: TableMetadata, branch: str) -> list[PipelineProperty]:
    """The properties of all pipelines that write a branch, without damaged ones."""
    found = []
    for name in metadata.properties:
        if name.startswith(PROPERTY_PREFIX):
            with contextlib.suppress(DataInvalidError):
                recorded = parsed_property(metadata, name)
                found += [recorded] if recorded is not None and recorded.branch == branch else []
    return found


def next_fence(metadata: TableMetadata) -> Fence:
    """The fence of a driver that starts on a table with this metadata."""
    epochs = [0]
    for name in metadata.properties:
        if name.startswith(PROPERTY_PREFIX):
            with contextlib.suppress(DataInvalidError):
                recorded = parsed_property(metadata, name)
                epochs.append(0 if recorded is None else recorded.fence.epoch)
    return Fence(max(epochs) + 1, ids.new_uuid())


def committed_key(metadata: TableMetadata, branch: str, pipeline: str) -> tuple[int, ...]:
    """The field ids of the key by which a pipeline's last commit replaced rows; () where it replaced none."""
    recorded = parsed_property(metadata, property_name(pipeline, branch))
    return () if recorded is None else recorded.key_ids
