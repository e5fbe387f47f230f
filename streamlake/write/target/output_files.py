"""The files of one task attempt: their names, and their removal when the attempt fails.

Invariant: a name is unique by checkpoint run, task and attempt, and every name that was handed out is
remembered until the attempt has ended.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection
from typing import Any

from streamlake.errors import StreamlakeError
from streamlake.spec.partitioning.partition_spec import PartitionSpec
from streamlake.storage.locations import data_file_name
from streamlake.write.target.target import WriteTarget


class OutputFiles:
    """Names new files `{partition:05d}-{task}-{uuid}-{count:05d}.{format}` under the table's data directory.

    One count serves data and deletes. The uuid is made of the target's operation uuid, the checkpoint, the
    task and the attempt. It distinguishes attempts even where an engine counts its tasks from zero again.
    """

    def __init__(self, target: WriteTarget, partition_id: int, task_id: int, attempt: int) -> None:
        self._target = target
        self._partition_id = partition_id
        self._task_id = task_id
        task = f"{partition_id}/{task_id}/{attempt}"
        identity = f"{target.operation_uuid}/{target.job_id}/{target.checkpoint_id}/{task}"
        self._uuid = str(uuid.uuid5(uuid.NAMESPACE_OID, identity))
        self._paths: list[str] = []

    @property
    def count(self) -> int:
        """Names handed out so far."""
        return len(self._paths)

    def new_path(self, partition: tuple[Any, ...]) -> str:
        """The path of a new data file of a partition (spec: Appendix F; hive-style directories)."""
        return self._new_path(self._target.spec, partition, self._target.options.file_format, deletes=False)

    def new_delete_path(self, spec: PartitionSpec, partition: tuple[Any, ...], file_format: str) -> str:
        """The path of a new delete file, `...-deletes.{format}`, of a partition of any spec of the table."""
        return self._new_path(spec, partition, file_format, deletes=True)

    def new_run(self) -> str:
        """The path of a new run of the key index."""
        path = self._target.locations.index_run(f"{self._uuid}-{len(self._paths) + 1:05d}")
        self._paths.append(path)
        return path

    def _new_path(
        self, spec: PartitionSpec, partition: tuple[Any, ...], extension: str, *, deletes: bool
    ) -> str:
        target = self._target
        count = len(self._paths) + 1
        name = data_file_name(
            self._partition_id, self._task_id, self._uuid, count, extension, deletes=deletes
        )
        path = target.locations.data_file(spec.partition_path(partition, target.schema), name)
        self._paths.append(path)
        return path

    def delete_all(self, keep: Collection[str] = ()) -> None:
        """Remove every file of this attempt but those in `keep`.

        A file that cannot be removed is left for orphan removal.
        """
        for path in self._paths:
            if path not in keep:
                with contextlib.suppress(StreamlakeError, OSError):
                    self._target.io.delete(path)
