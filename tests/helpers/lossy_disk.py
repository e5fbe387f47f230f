"""A device that forgets, under real files: what was fsynced is known, and a loss of power leaves that and chance's part of
the rest.

Every fsync of this process is noted instead of done: of a file its bytes, of a directory its names. Files are their inodes,
so that a name that was made durable before its bytes shows a file with nothing in it. Invariant: the noted inodes are held
open, so that none of their numbers is given to another file.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from streamlake.storage import durability


class PowerLoss(BaseException):
    """The machine is gone: no Exception, so that nobody deals with it."""


class LossyDisk:
    """The files below `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.syncs = 0
        self._cut_at: int | None = None
        self._is_off = False
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._held: list[int] = []
        self._kinds: dict[int, bool] = {}
        self._seen: dict[int, dict[str, int]] = {}
        self._content: dict[int, bytes] = {}

    @contextmanager
    def at_work(self) -> Iterator[LossyDisk]:
        """Within it, no fsync reaches the real device."""
        durability._reached.clear()
        with patch.object(os, "fsync", self._sync):
            yield self
        for descriptor in self._held:
            os.close(descriptor)
        self._held.clear()

    def cut_after(self, syncs: int) -> None:
        """The power goes at the fsync after so many from now on, before it has done anything."""
        self._cut_at = self.syncs + syncs

    def _sync(self, descriptor: int) -> None:
        if self._is_off:
            raise PowerLoss
        if self._cut_at is not None and self.syncs >= self._cut_at:
            self.go_off()
            raise PowerLoss
        self.syncs += 1
        status = os.fstat(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = self._listed(path)
        else:
            self._bytes[status.st_ino] = Path(path).read_bytes()
        self._held.append(os.dup(descriptor))

    def _listed(self, directory: str) -> dict[str, int]:
        names = {}
        for entry in os.scandir(directory):
            number = entry.inode()
            names[entry.name] = number
            self._kinds[number] = entry.is_dir(follow_symlinks=False)
        return names

    def go_off(self) -> None:
        """What processes see now is what chance may leave."""
        self._is_off = True
        for directory, _, files in os.walk(self.home):
            self._seen[os.stat(directory).st_ino] = self._listed(directory)
            for name in files:
                path = Path(directory, name)
                self._content[path.stat().st_ino] = path.read_bytes()

    def come_back(self, chance: random.Random | None = None) -> None:
        """The files as the next boot finds them; without `chance` only what is certain."""
        if not self._is_off:
            self.go_off()
        root = os.stat(self.home).st_ino
        shutil.rmtree(self.home)
        self._restore(self.home, root, chance)
        durability._reached.clear()
        self._is_off, self._cut_at = False, None
        self._names[os.stat(self.home).st_ino] = self._listed(str(self.home))

    def _restore(self, path: Path, inode: int, chance: random.Random | None) -> None:
        path.mkdir()
        certain, seen = self._names.get(inode, {}), self._seen.get(inode, {})
        for name in sorted({**certain, **seen}):
            number = certain.get(name)
            if chance is not None and certain.get(name) != seen.get(name) and chance.random() < 0.5:
                number = seen.get(name)
            if number is None:
                continue
            if self._kinds[number]:
                self._restore(path / name, number, chance)
                continue
            left = self._bytes.get(number, b"")
            now = self._content.get(number, left)
            (path / name).write_bytes(now if chance is not None and chance.random() < 0.5 else left)
