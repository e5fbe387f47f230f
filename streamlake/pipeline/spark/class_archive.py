"""The archive of the classes that the driver's JVM loads: `streamlake warm-up` makes it, every start maps it.

Place in the flow: options of the JVM when a lean session starts (JEP 350). Without an archive a JVM spends
more than half of the time until the first task on reading and verifying classes. Recording one makes a start
slower and delays the end, so no pipeline records one as it runs. Invariants: an archive is complete or not
there, because it gets its name only when the JVM that has written it has ended; and if anything is wrong with
it, the JVM starts without.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext

from streamlake.errors import StreamlakeError

_QUIET = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
_SECONDS = 120
_KEPT = 2
"""Archives (150 MB each): one for the version that runs, one for the version before."""


def archive_path(java: str, options: str) -> Path:
    """The path of the archive for this Java (the output of `java -version`), this Spark and these JVM
    options, in the user's cache directory; the file need not exist.
    """
    content = "\n".join((java, pyspark.__version__, str(Path(pyspark.__file__).parent), options))
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamlake"
    return home / f"classes-{hashlib.sha256(content.encode()).hexdigest()[:16]}.jsa"


def mapping_options(path: Path) -> str:
    """The JVM options that map the archive."""
    return f'"-XX:SharedArchiveFile={path}" {_QUIET}'


class ArchiveDraft:
    """An archive that the JVM of this process is going to write, for `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._draft = path.with_name(f"{path.stem}-{uuid.uuid4().hex[:8]}.tmp")

    @property
    def java_options(self) -> str:
        """The JVM options that record an archive."""
        return f'"-XX:ArchiveClassesAtExit={self._draft}" {_QUIET}'

    def keep(self) -> int:
        """End the JVM, whose session has been stopped, and move the archive that it has written to `path`;
        returns the size in bytes. Raises StreamlakeError where it has written none, OSError.
        """
        try:
            _end_jvm()
            if not self._draft.exists():
                raise StreamlakeError(
                    f"this Java wrote no archive of classes to {self._draft.parent}: it needs the class data "
                    "sharing that comes with OpenJDK 17 and later (`java -Xshare:dump` makes its own part "
                    "where a package leaves it out)"
                )
            os.replace(self._draft, self.path)
        finally:
            self._draft.unlink(missing_ok=True)
        _forget_old(self.path.parent)
        return self.path.stat().st_size


def _end_jvm() -> None:
    """End the JVM by closing its input; it writes the archive then."""
    gateway: Any = SparkContext._gateway
    process: Any = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()
    process.wait(_SECONDS)


def _forget_old(home: Path) -> None:
    archives = sorted(home.glob("classes-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in archives[_KEPT:]:
        path.unlink(missing_ok=True)
