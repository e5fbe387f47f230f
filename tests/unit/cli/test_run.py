"""What `streamlake run` starts its Spark with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamlake.cli import run as command
from streamlake.pipeline.session import LEAN_JVM

KAFKA = "kafka: {bootstrap-servers: 'localhost:1', topics: t, schema: id long}"
RATE = "rate: {rows-per-second: 1}"


class _StartedError(Exception):
    pass


@pytest.mark.parametrize(("source", "options"), [(KAFKA, LEAN_JVM), (RATE, "")])
def test_a_driver_that_no_record_passes_through_gets_a_lean_jvm(
    source: str, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def start(*_: object, **settings: Any) -> None:
        given.update(settings)
        raise _StartedError

    monkeypatch.setattr(command, "spark_session", start)
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(
        f"source: {{{source}}}\nsink: {{table: {tmp_path}/t, create: true}}\ncheckpoint: {tmp_path}/c\n"
        "spark: {config: {spark.driver.memory: 1g}}\n"
    )
    with pytest.raises(_StartedError):
        command.run(str(pipeline))
    assert given["java_options"] == options
    assert given["config"] == {"spark.driver.memory": "1g"}
