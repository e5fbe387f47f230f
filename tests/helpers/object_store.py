"""An S3 server of the test's own on 127.0.0.1 (moto), and the settings that reach it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3

from tests.helpers.processes import free_ports, stop, wait_until

KEYS = {"s3.access-key-id": "test-key", "s3.secret-access-key": "test-secret", "s3.region": "us-east-1"}
_START_SECONDS = 60


@dataclass(frozen=True)
class S3Server:
    """A running server; `endpoint` is its address."""

    endpoint: str

    @property
    def properties(self) -> dict[str, str]:
        """The storage settings of a catalog, or of a table's path."""
        return {"s3.endpoint": self.endpoint, **KEYS}

    @property
    def client(self) -> Any:
        """boto3's client."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEYS["s3.access-key-id"],
            aws_secret_access_key=KEYS["s3.secret-access-key"],
            region_name=KEYS["s3.region"],
        )

    def bucket(self, name: str) -> str:
        """Make a bucket; its name."""
        self.client.create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """The keys of a bucket."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server that ends with the block."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        server = S3Server(f"http://127.0.0.1:{port}")
        wait_until(lambda: _answers(server, process), _START_SECONDS, "the S3 server")
        yield server
    finally:
        stop(process)


def _answers(server: S3Server, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the S3 server has ended"
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"{server.endpoint}/moto-api/", timeout=5).close()
        return True
    return False
