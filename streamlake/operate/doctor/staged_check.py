"""Checks whether the checkpoints that are staged for a table are readable, next, or obsolete.

It reads file by file, so that a damaged one does not hide the others. Invariant: the files of a checkpoint
that is still to be committed have to exist; the files of any other are left alone all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamlake.checkpoint.committable import Committable, committable_from_bytes
from streamlake.commit.history import History
from streamlake.commit.lineage import RecoverCommand
from streamlake.errors import DataInvalidError, MissingFileError, StreamlakeError
from streamlake.formats.manifests.manifests import read_manifest
from streamlake.maintain.reachable_files import ReachableFiles
from streamlake.operate.doctor.finding import Findings
from streamlake.spec.metadata.manifest import ManifestEntry, ManifestFile
from streamlake.table.table import Table
from streamlake.wording import counted

NEXT = "next"
WAITING = "waiting"
COMMITTED = "committed"
STALE = "stale"
FOREIGN = "foreign"


@dataclass(frozen=True)
class StagedCheckpoint:
    """One staged checkpoint.

    `state` is `next` to be committed, `waiting` for an earlier one, `committed` (kept until its successor
    is), `stale` (a successor has committed), or `foreign` (of a table or a job that no longer exists).
    """

    path: str
    pipeline: str
    job_id: str
    checkpoint_id: int
    branch: str
    rows: int
    files: int
    state: str


def check_staged(
    table: Table, findings: Findings, reachable: ReachableFiles, step: Callable[[], None]
) -> tuple[StagedCheckpoint, ...]:
    """Add what is wrong with staged checkpoints; returns all of them in commit order.

    `step` is called for each.
    """
    found: list[tuple[str, Committable]] = []
    for info in sorted(
        table.io.list_prefix(table.locations.committables_directory), key=lambda each: each.path
    ):
        if not info.path.endswith(".json"):
            continue
        step()
        try:
            found.append((info.path, committable_from_bytes(table.io.read_bytes(info.path), info.path)))
        except MissingFileError:
            continue  # committed and removed during the check
        except StreamlakeError as error:
            reachable.is_complete = False
            findings.error(
                "staged-damaged",
                info.path,
                str(error),
                "move the file away and start the stream again: Spark runs that checkpoint once more",
            )
    found.sort(key=lambda pair: (pair[1].identity.job_id, pair[1].branch, pair[1].identity.checkpoint_id))
    due: set[tuple[str, str]] = set()
    staged = []
    for path, committable in found:
        state = _state(table, path, committable, findings)
        owner = (committable.identity.job_id, committable.branch)
        if state == NEXT and owner in due:
            state = WAITING
        due |= {owner} if state == NEXT else set()
        staged.append(_shown(path, committable, state))
        _need_files(table, path, committable, state, findings, reachable)
        _report(staged[-1], findings)
    return tuple(staged)


def _state(table: Table, path: str, committable: Committable, findings: Findings) -> str:
    identity = committable.identity
    if committable.table_uuid != table.uuid:
        findings.warning(
            "staged-foreign",
            path,
            f"{identity} was staged for a table with uuid {committable.table_uuid}, which was dropped since "
            f"(now {table.uuid}): it is never committed",
            f"delete {path}",
        )
        return FOREIGN
    try:
        history = History.of(table.metadata, committable.branch, identity.pipeline, identity.job_id)
    except DataInvalidError as error:
        fix = "set the property to its value in an earlier metadata file"
        findings.error("marker-damaged", table.location, str(error), fix)
        return FOREIGN
    wrong = history.finding()
    if wrong is not None:
        command = RecoverCommand(table.name, identity.pipeline, committable.branch)
        findings.error(
            f"lineage-{wrong.kind.value}",
            path,
            f"{identity} cannot be committed: {wrong.found}",
            "; or ".join([*map(command.offer, wrong.ways)] or [wrong.by_hand]),
        )
        return FOREIGN
    marker = history.marker
    if marker is None or marker.checkpoint_id < identity.checkpoint_id:
        return NEXT
    if marker.checkpoint_id > identity.checkpoint_id:
        return STALE
    if marker.offsets_digest != identity.offsets_digest:
        findings.error(
            "staged-lineage",
            path,
            f"{identity} is in the table with other source offsets than it was staged with: the checkpoint "
            "directory was put back, or is used twice",
            "stop the stream and compare with `streamlake doctor TABLE CHECKPOINT`, which names the ways out",
        )
    return COMMITTED


def _shown(path: str, committable: Committable, state: str) -> StagedCheckpoint:
    identity = committable.identity
    files = sum(manifest.added_files_count or 0 for manifest in committable.manifests)
    return StagedCheckpoint(
        path,
        identity.pipeline,
        identity.job_id,
        identity.checkpoint_id,
        committable.branch,
        committable.rows,
        files,
        state,
    )


def _report(staged: StagedCheckpoint, findings: Findings) -> None:
    text = (
        f"checkpoint {staged.checkpoint_id} of pipeline '{staged.pipeline}' ({counted(staged.rows, 'row')})"
    )
    if staged.state in (NEXT, WAITING):
        order = "first" if staged.state == NEXT else "after the earlier ones"
        what = f"{text} is staged and not committed; a start of the stream commits it {order}"
        findings.note("staged-pending", staged.path, what, "start the stream, unless it is running")
    elif staged.state == STALE:
        what = f"{text} is staged still, although a later one has committed"
        findings.note(
            "staged-stale", staged.path, what, "nothing: the stream forgets it with its next checkpoint"
        )


def _need_files(
    table: Table,
    path: str,
    committable: Committable,
    state: str,
    findings: Findings,
    reachable: ReachableFiles,
) -> None:
    required = state in (NEXT, WAITING)
    reachable.need(path, None, "staged checkpoint", "the stream", required=False)
    for run in (*committable.runs, *((committable.index_state,) if committable.index_state else ())):
        reachable.need(run, None, "index file", path, required=False)
    for manifest in committable.manifests:
        reachable.need(
            manifest.manifest_path, manifest.manifest_length, "staged manifest", path, required=required
        )
        for entry in _entries(table, manifest, path, findings if required else None, reachable):
            file = entry.data_file
            reachable.need(file.file_path, file.file_size_in_bytes, "staged file", path, required=required)


def _entries(
    table: Table, manifest: ManifestFile, path: str, findings: Findings | None, reachable: ReachableFiles
) -> list[ManifestEntry]:
    try:
        return read_manifest(table.io, manifest, table.specs)
    except MissingFileError:
        if findings is not None:
            reachable.is_complete = False  # reported as a missing file
        return []
    except StreamlakeError as error:
        reachable.is_complete = False
        if findings is not None:
            findings.error(
                "staged-damaged",
                manifest.manifest_path,
                f"{error}; {path} cannot be committed",
                f"move {path} away and start the stream again: Spark runs that checkpoint once more",
            )
        return []
