"""What a table says about which checkpoints it holds: in snapshot summaries, and in a property that outlives them.

Both are written by the same commit and both are read: a property alone would lose rows after a rollback, ancestry
alone would double them after snapshots expire. Where they contradict each other the job stops.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamlake.checkpoint.identity import CheckpointIdentity
from streamlake.errors import DataInvalidError, LineageError
from streamlake.spec.snapshot import MAIN_BRANCH, Snapshot
from streamlake.spec.table_metadata import TableMetadata

JOB_ID = "streamlake.job-id"
MAX_COMMITTED_CHECKPOINT_ID = "streamlake.max-committed-checkpoint-id"
PIPELINE = "streamlake.pipeline"
OFFSETS_DIGEST = "streamlake.offsets-digest"
START_OFFSETS = "streamlake.start-offsets"
END_OFFSETS = "streamlake.end-offsets"
KEY_IDS = "streamlake.key-ids"
SEQUENCE_IDS = "streamlake.sequence-ids"
PROPERTY_PREFIX = "streamlake.pipeline."
OFFSETS_TEXT_LIMIT = 8_192


@dataclass(frozen=True)
class Marker:
    """The last checkpoint that a table holds of one job. `snapshot_id` is None when only the property knows."""

    job_id: str
    checkpoint_id: int
    offsets_digest: str
    snapshot_id: int | None


def property_name(pipeline: str, branch: str) -> str:
    """The table property of a pipeline; branches other than main have their own."""
    return f"{PROPERTY_PREFIX}{pipeline}" + ("" if branch == MAIN_BRANCH else f"@{branch}")


def marker_summary(identity: CheckpointIdentity) -> dict[str, str]:
    """The summary entries of the snapshot that commits a checkpoint. Long offsets are left to their digest."""
    summary = {
        JOB_ID: identity.job_id,
        MAX_COMMITTED_CHECKPOINT_ID: str(identity.checkpoint_id),
        PIPELINE: identity.pipeline,
        OFFSETS_DIGEST: identity.offsets_digest,
    }
    for key, offsets in ((START_OFFSETS, identity.start_offsets), (END_OFFSETS, identity.end_offsets)):
        text = json.dumps(list(offsets))
        if len(text) <= OFFSETS_TEXT_LIMIT:
            summary[key] = text
    return summary


def key_summary(key_ids: Sequence[int], sequence_ids: Sequence[int]) -> dict[str, str]:
    """The summary entries of a snapshot whose rows were replaced by key: field ids; none for other snapshots."""
    told = {KEY_IDS: key_ids, SEQUENCE_IDS: sequence_ids}
    return {name: ",".join(map(str, field_ids)) for name, field_ids in told.items() if field_ids}


def marker_property(identity: CheckpointIdentity, branch: str, key_ids: Sequence[int] = ()) -> dict[str, str]:
    """The table property of the same commit."""
    value: dict[str, str | int | list[int]] = {
        "job-id": identity.job_id,
        "checkpoint-id": identity.checkpoint_id,
        "offsets-digest": identity.offsets_digest,
    }
    if key_ids:
        value["key-ids"] = list(key_ids)
    if branch != MAIN_BRANCH:
        value["branch"] = branch
    return {property_name(identity.pipeline, branch): json.dumps(value)}


def committed_snapshot(metadata: TableMetadata, branch: str, identity: CheckpointIdentity) -> Snapshot | None:
    """The snapshot in the branch's ancestry that committed exactly this checkpoint, if it has not expired."""
    wanted = str(identity.checkpoint_id)
    for snapshot in _ancestry(metadata, branch):
        if snapshot.summary.get(JOB_ID) == identity.job_id:
            found = snapshot.summary.get(MAX_COMMITTED_CHECKPOINT_ID)
            if found == wanted:
                return snapshot
            if found is not None and int(found) < identity.checkpoint_id:
                return None
    return None


def last_committed(metadata: TableMetadata, branch: str, pipeline: str, job_id: str) -> Marker | None:
    """The last checkpoint of this job in the table.

    Raises LineageError where property and ancestry contradict each other, or where the pipeline's last commit was
    made by another job id: the checkpoint directory was lost, deleted or replaced.
    """
    name = property_name(pipeline, branch)
    told = _from_property(metadata, name)
    if told is not None and told.job_id != job_id:
        raise LineageError(
            f"pipeline '{pipeline}' last wrote {metadata.location} as job {told.job_id} (checkpoint "
            f"{told.checkpoint_id}), but this checkpoint directory belongs to job {job_id}: it is new or another one, "
            "and going on would read the source from its start and write rows twice. Either restore the old "
            "checkpoint directory, or start under another pipeline name to append the stream again on purpose"
        )
    name, told = _from_properties(metadata, branch, job_id) or (name, told)
    # A branch that was published and removed is made anew from main, so its rows are looked for there.
    gone = told is not None and metadata.head(branch) is None
    seen, oldest = _from_ancestry(metadata, MAIN_BRANCH if gone else branch, job_id)
    if told is None or (seen is not None and seen.checkpoint_id >= told.checkpoint_id):
        return seen
    if seen is not None or _is_rolled_back(metadata, told, oldest):
        raise LineageError(
            f"{metadata.location} was told by its property that checkpoint {told.checkpoint_id} of pipeline "
            f"'{pipeline}' is committed, but the history of branch '{branch}' "
            + (f"ends at checkpoint {seen.checkpoint_id}" if seen else "holds none")
            + ": the table was rolled back. Going on would leave out the rows in between. Either roll the table "
            f"forward again, or remove the property '{name}' and restore the checkpoint "
            "directory that belongs to the table's state"
        )
    return told


def committed_key(metadata: TableMetadata, branch: str, pipeline: str) -> tuple[int, ...]:
    """The field ids of the key by which a pipeline's last commit replaced rows; () where it did not."""
    name = property_name(pipeline, branch)
    if _from_property(metadata, name) is None:
        return ()
    return tuple(json.loads(metadata.properties[name]).get("key-ids", ()))


def _from_property(metadata: TableMetadata, name: str) -> Marker | None:
    text = metadata.properties.get(name)
    if text is None:
        return None
    try:
        obj = json.loads(text)
        return Marker(obj["job-id"], int(obj["checkpoint-id"]), obj["offsets-digest"], None)
    except (ValueError, KeyError, TypeError) as error:
        raise DataInvalidError(
            f"the table property '{name}' of {metadata.location} is damaged: {text!r}"
        ) from error


def _from_properties(metadata: TableMetadata, branch: str, job_id: str) -> tuple[str, Marker] | None:
    """The last checkpoint that a property knows of a job on a branch, whatever its pipeline is or was called."""
    told = []
    for name, text in metadata.properties.items():
        if name.startswith(PROPERTY_PREFIX) and job_id in text:
            found = _from_property(metadata, name)
            if found is not None and found.job_id == job_id and _branch_of(text) == branch:
                told.append((name, found))
    return max(told, key=lambda found: found[1].checkpoint_id, default=None)


def _branch_of(property_text: str) -> str:
    return str(json.loads(property_text).get("branch", MAIN_BRANCH))


def _from_ancestry(
    metadata: TableMetadata, branch: str, job_id: str
) -> tuple[Marker | None, Snapshot | None]:
    """The newest marker of the job, and the last snapshot that was looked at."""
    last: Snapshot | None = None
    for last in _ancestry(metadata, branch):
        if last.summary.get(JOB_ID) == job_id and MAX_COMMITTED_CHECKPOINT_ID in last.summary:
            checkpoint_id = int(last.summary[MAX_COMMITTED_CHECKPOINT_ID])
            return Marker(job_id, checkpoint_id, last.summary.get(OFFSETS_DIGEST, ""), last.snapshot_id), last
    return None, last


def _is_rolled_back(metadata: TableMetadata, told: Marker, oldest: Snapshot | None) -> bool:
    """Whether a checkpoint that is not in the history is missing from it for certain, and has not just expired.

    It is when the history is there down to its beginning, or down to a snapshot that is older than the checkpoint's.
    """
    if oldest is None or oldest.parent_snapshot_id is None:
        return True
    wanted = (told.job_id, str(told.checkpoint_id))
    return any(
        snapshot.sequence_number > oldest.sequence_number
        for snapshot in metadata.snapshots
        if (snapshot.summary.get(JOB_ID), snapshot.summary.get(MAX_COMMITTED_CHECKPOINT_ID)) == wanted
    )


def _ancestry(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    head = metadata.head(branch)
    return metadata.ancestors(None if head is None else head.snapshot_id)
