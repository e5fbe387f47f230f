"""The programs of a PostgreSQL server for tests: fetched like the other parts, unpacked once into the cache.

The archive holds `initdb`, `pg_ctl`, `postgres` and the server's libraries, `pgoutput` and `hstore` among them.
"""

from __future__ import annotations

import io
import lzma
import platform
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.helpers.jars import Artifact, Part, cache_root, jars, locked
from tests.helpers.rings import PartUnavailableError

VERSION = "17.6.0"
_PLATFORMS = {
    ("Linux", "x86_64"): "linux-amd64",
    ("Linux", "aarch64"): "linux-arm64v8",
    ("Darwin", "x86_64"): "darwin-amd64",
    ("Darwin", "arm64"): "darwin-arm64v8",
}


def postgres_part() -> Part:
    """The archive for this machine. Raises PartUnavailableError where there is none."""
    machine = platform.system(), platform.machine()
    if machine not in _PLATFORMS:
        raise PartUnavailableError(f"there is no PostgreSQL to be fetched for {' '.join(machine)}")
    name = f"embedded-postgres-binaries-{_PLATFORMS[machine]}"
    return Part(
        f"{name}-{VERSION}", (Artifact("io.zonky.test.postgres", name, VERSION, transitive=False),), 1
    )


def server_home() -> Path:
    """The directory whose `bin` holds `initdb` and `postgres`.

    Raises PartUnavailableError when it cannot be fetched or unpacked.
    """
    part = postgres_part()
    home = cache_root() / f"{part.directory}-unpacked"
    if not home.exists():
        (archive,) = jars(part)
        with locked(home):
            if not home.exists():
                _unpack(archive, home)
    return home


def _unpack(archive: Path, home: Path) -> None:
    """Unpack into a temporary directory, which is renamed when it is whole."""
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as work:
        target = Path(work, "server")
        try:
            with zipfile.ZipFile(archive) as outer:
                (packed,) = [name for name in outer.namelist() if name.endswith(".txz")]
                with tarfile.open(fileobj=io.BytesIO(outer.read(packed)), mode="r:xz") as inner:
                    inner.extractall(target, filter="data")
        except (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, EOFError, ValueError) as error:
            shutil.rmtree(archive.parent, ignore_errors=True)
            raise PartUnavailableError(
                f"{archive.name} cannot be unpacked: {type(error).__name__}: {error}"
            ) from error
        target.rename(home)
