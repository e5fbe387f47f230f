"""Faults of real files for the writer tasks, which work for every user, root too, and without a mount."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from streamlake.storage.local import LocalFileIO

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class FullDisk(LocalFileIO):
    """Every stream that is opened for writing meets the kernel's own ENOSPC."""

    def open_output(self, path: str) -> BinaryIO:
        super().open_output(path).close()
        return cast(BinaryIO, pa.OSFile("/dev/full", "wb"))


def with_file_size_limit(write_task: Callable[..., Task], limit: int, *arguments: Any) -> Task:
    """The task of `write_task`, in which no file may grow beyond `limit` bytes: write(2) fails with EFBIG."""
    return partial(_limited, write_task(*arguments), limit)


def _limited(task: Task, limit: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield from task(batches)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """`directory` is one in which the kernel lets nobody create a file, not even root."""
    aside = directory.with_name(f"{directory.name}-aside")
    directory.rename(aside)
    directory.symlink_to("/sys/kernel")
    try:
        yield
    finally:
        directory.unlink()
        aside.rename(directory)


@contextmanager
def damaged(path: Path, damage: Callable[[bytes], bytes]) -> Iterator[None]:
    """`path` with other content, and its own again afterwards."""
    content = path.read_bytes()
    path.write_bytes(damage(content))
    try:
        yield
    finally:
        path.write_bytes(content)


def device_is_full(path: str) -> OSError:
    return OSError(28, os.strerror(28), path)
