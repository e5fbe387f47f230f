"""Chosen groups: what of a plan is rewritten now, where a table is compacted again and again beside a stream.

Tiers: a file is rewritten together with smaller ones only where these are at least as large as itself. So a
row is written again about as often as the table doubles, not with every hundred small files, and there are
only some files of each order of magnitude. Files with many deletes are rewritten in any case. Invariant: what
is left out is left as it is, and a later run may choose it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from streamlake.maintain.compact.compact_options import CompactOptions
from streamlake.maintain.compact.file_groups import FileGroup, has_many_deletes
from streamlake.read.planning import FileScanTask


def tiered(groups: Iterable[FileGroup], options: CompactOptions) -> Iterator[FileGroup]:
    """The groups without the files that are too large for a rewrite with the others."""
    for group in groups:
        tasks = _in_tiers(group.tasks, options)
        if tasks:
            chosen = replace(group, tasks=tasks)
            yield replace(chosen, output_files=options.output_files(chosen.bytes))


def within(groups: Sequence[FileGroup], max_bytes: int) -> list[FileGroup]:
    """The first groups, up to so many bytes of data files; at least one, if there are any."""
    size = 0
    for count, group in enumerate(groups):
        size += group.bytes
        if count and size > max_bytes:
            return list(groups[:count])
    return list(groups)


def _in_tiers(tasks: Sequence[FileScanTask], options: CompactOptions) -> tuple[FileScanTask, ...]:
    needed = {
        id(task) for task in tasks if has_many_deletes(task, options) or _size(task) > options.max_file_size
    }
    small = sorted((task for task in tasks if id(task) not in needed), key=_size)
    sizes = list(map(_size, small))
    total = sum(sizes)
    while sizes and sizes[-1] > total - sizes[-1]:
        total -= sizes.pop()
    if not needed and len(sizes) < options.min_input_files:
        return ()
    wanted = needed | {id(task) for task in small[: len(sizes)]}
    return tuple(task for task in tasks if id(task) in wanted)


def _size(task: FileScanTask) -> int:
    return task.data_file.file_size_in_bytes
