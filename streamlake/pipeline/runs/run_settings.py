"""The settings of one run of a query on one table, resolved once, the same for all its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamlake.checkpoint.table_note import Calls
from streamlake.commit.lineage import RecoverCommand
from streamlake.pipeline.runs.commit_queue import CommitQueue
from streamlake.pipeline.runs.evolution import EvolutionOptions
from streamlake.write.target.job_options import AS_THE_TABLE, JobOptions


@dataclass(frozen=True)
class RunSettings:
    """`job_id` names the query, `run_id` this run of it; `mode` is the sink's.

    Every `max_continuous_empty_commits`-th empty checkpoint in a row is committed. With a `queue`, its thread
    commits checkpoints (None: one after the other). `command` is the recover command that errors name.
    `calls`: for which checkpoints the table is called. `job`: how files are written, where the table does not
    decide it.
    """

    job_id: str
    run_id: str
    branch: str
    mode: str
    max_continuous_empty_commits: int
    queue: CommitQueue | None = None
    command: RecoverCommand | None = None
    evolution: EvolutionOptions = field(default_factory=EvolutionOptions)
    calls: Calls = Calls.EVERY
    job: JobOptions = AS_THE_TABLE
