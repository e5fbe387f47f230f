"""An argument that a sink or source does not have is answered with the nearest one, and is a TypeError still."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streamlake import IcebergSink, IcebergTables, KafkaSource
from streamlake.errors import InvalidOptionError, UnknownArgumentError

CASES: list[tuple[Callable[..., Any], str, str]] = [
    (lambda **given: IcebergSink("/t", **given), "on-error", "IcebergSink has no argument 'on-error'; did you mean 'on_error'?"),
    (lambda **given: IcebergSink("/t", **given), "onError", "IcebergSink has no argument 'onError'; did you mean 'on_error'?"),
    (lambda **given: IcebergSink("/t", **given), "schemaEvolution", "IcebergSink has no argument 'schemaEvolution'; did you mean 'schema_evolution'?"),
    (lambda **given: IcebergSink("/t").start(None, **given), "checkpointLocation", "IcebergSink.start has no argument 'checkpointLocation'; did you mean 'checkpoint_location'?"),
    (lambda **given: IcebergTables("/t/{topic}", **given), "partitionBy", "IcebergTables has no argument 'partitionBy'; did you mean 'partition_by'?"),
    (lambda **given: IcebergTables("/t/{topic}", **given), "default-table", "IcebergTables has no argument 'default-table'; did you mean 'default_table'?"),
    (lambda **given: IcebergTables("/t/{topic}", tables={"/t/a": given}), "keys", "IcebergTables has no argument 'keys'; did you mean 'key'?"),
    (lambda **given: KafkaSource("b:1", **given), "topic", "KafkaSource has no argument 'topic'; did you mean 'topics'?"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "name", "message"), CASES, ids=[message for _, _, message in CASES])
def test_the_nearest_argument(call: Callable[..., Any], name: str, message: str) -> None:
    with pytest.raises(UnknownArgumentError) as raised:
        call(**{name: "x"})
    assert str(raised.value) == message
    assert isinstance(raised.value, TypeError)
    assert isinstance(raised.value, InvalidOptionError)
    assert str(pickle.loads(pickle.dumps(raised.value))) == message


def test_one_that_is_far_from_all() -> None:
    with pytest.raises(
        UnknownArgumentError, match=r"KafkaSource has no argument 'zz'; it has bootstrap_servers, topics"
    ):
        KafkaSource("b:1", "t", zz=1)  # type: ignore[call-arg]


def test_what_is_checked_stays_what_it_was() -> None:
    assert next(iter(inspect.signature(IcebergSink).parameters)) == "table"
    assert "max_rejects" in inspect.signature(IcebergSink).parameters
    source = KafkaSource("b:1", "t", options={"min-partitions": 2})
    assert pickle.loads(pickle.dumps(source)) == source
    assert replace(source, topics="u").topics == ("u",)
