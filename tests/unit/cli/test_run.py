"""What `streamlake run` starts its Spark with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamlake.cli.commands import run as command

KAFKA = "kafka: {bootstrap-servers: 'localhost:1', topics: t, schema: id long}"
RATE = "rate: {rows-per-second: 1}"


class _StartedError(Exception):
    pass


@pytest.mark.parametrize(("source", "is_lean"), [(KAFKA, True), (RATE, False)])
def test_a_driver_that_no_record_passes_through_gets_a_lean_session(
    source: str, is_lean: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def start(*_: object, **settings: Any) -> None:
        given.update(settings)
        raise _StartedError

    monkeypatch.setattr(command, "started_session", start)
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(
        f"source: {{{source}}}\nsink: {{table: {tmp_path}/t, create: true}}\ncheckpoint: {tmp_path}/c\n"
        "spark: {config: {spark.driver.memory: 1g}}\n"
    )
    with pytest.raises(_StartedError):
        command.run(str(pipeline))
    assert given["is_lean"] is is_lean
    assert given["config"] == {"spark.driver.memory": "1g"}
