"""The comparison's broker and topics, filled once and kept in its folder: a rerun finds them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.bench.peers.parts import class_path
from tests.helpers.broker import KafkaBroker
from tests.helpers.jvm import java_program

PARTITIONS = 2


class Topics:
    """A running broker, and what a table must hold after each of its topics."""

    def __init__(self, home: Path, keys: int) -> None:
        self._home, self._keys = home, keys
        self._broker = KafkaBroker(home / "broker")

    def __enter__(self) -> Topics:
        self._broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.stop()

    @property
    def servers(self) -> str:
        return self._broker.bootstrap_servers

    def filled(self, kind: str, messages: int) -> tuple[str, dict[str, Any]]:
        """A topic of `messages` records of `kind` (json or debezium), lz4; its name and `FillTopic`'s account of it."""
        account = self._home / f"{kind}-{messages}-{self._keys}.json"
        if account.exists():
            known: dict[str, Any] = json.loads(account.read_text())
            return known.pop("topic"), known
        topic = self._broker.create_topic(f"{kind}-{messages}-{os.getpid()}", partitions=PARTITIONS)
        print(f"  filling {topic} ...", end="", flush=True)
        command = [java_program(), "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-cp", os.pathsep.join(map(str, class_path())), "FillTopic"]
        command += [self.servers, topic, kind, str(messages), str(self._keys)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        if done.returncode != 0:
            raise SystemExit(f"{topic} could not be filled:\n{done.stdout}\n{done.stderr}")
        known = json.loads(done.stdout.strip().splitlines()[-1])
        account.write_text(json.dumps({"topic": topic, **known}))
        print(f" {known['bytes'] / known['messages']:.0f} bytes a message", flush=True)
        return topic, known
