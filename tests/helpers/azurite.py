"""Microsoft's own emulator of Azure's blob storage on 127.0.0.1, from npm into the cache of the tests' parts."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

from tests.helpers.jars import cache_root, locked
from tests.helpers.processes import free_ports, is_listening, stop, wait_until
from tests.helpers.rings import PartUnavailableError

VERSION = "3.37.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key that the emulator documents."""
_INSTALL_SECONDS = 600
_API = "2021-08-06"


class Azurite:
    """The running emulator; `properties` reach it."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        self.properties = {
            "adls.account-name": ACCOUNT,
            "adls.account-key": KEY,
            "adls.endpoint": self.endpoint,
        }

    def container(self, name: str) -> str:
        """Make a container; the location of its root."""
        date = formatdate(usegmt=True)
        signed = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{_API}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256))
        headers = {
            "x-ms-date": date,
            "x-ms-version": _API,
            "Authorization": f"SharedKey {ACCOUNT}:{signature.decode()}",
            "Content-Length": "0",
        }
        url = f"{self.endpoint}/{name}?restype=container"
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=30).close()
        return f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net"


@contextlib.contextmanager
def azurite() -> Iterator[Azurite]:
    """An emulator that ends with the block. Raises PartUnavailableError."""
    program = _installed()
    [port] = free_ports(1)
    command = ["node", str(program), "--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--disableTelemetry"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_listening(port) or process.poll() is not None, 60, "Azurite")
        assert process.poll() is None, "Azurite has ended"
        yield Azurite(port)
    finally:
        stop(process)


def _installed() -> Path:
    """The emulator's program, installed once."""
    if not shutil.which("npm"):
        raise PartUnavailableError("npm is not installed, and Azurite is a package of it")
    home = cache_root() / f"azurite-{VERSION}"
    program = home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    with locked(home):
        if not (home / "complete").exists():
            command = [
                "npm",
                "install",
                "--no-audit",
                "--no-fund",
                "--prefix",
                str(home),
                f"azurite@{VERSION}",
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
            if done.returncode:
                raise PartUnavailableError(f"npm could not install Azurite: {done.stderr[-1000:]}")
            (home / "complete").touch()
    return program
