"""What tasks ask of the driver: who answers, how often, and what is left where nobody does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamlake.errors import (
    DecodeError,
    IndexDamagedError,
    InvalidOptionError,
    MisplacedKeyError,
    NewSchemaError,
    NewSourceError,
    NoRejectsTableError,
    SchemaMismatchError,
    StorageError,
    StreamlakeError,
)
from streamlake.pipeline.runs.evolution import MAX_CHANGES
from streamlake.pipeline.runs.requests import TABLE_HANDLERS, AskedTable, Requests
from streamlake.pipeline.runs.stages import Aim

WIDER, MORE = NewSchemaError("wider", "a"), NewSchemaError("more", "b")
NO_REJECTS = NoRejectsTableError("none")
DAMAGED = IndexDamagedError("damaged")
BAD = DecodeError("bad")
SOURCE = NewSourceError("new", "topic", "shop.users")
MISPLACED = MisplacedKeyError("misplaced")


class Run:
    """A run that answers everything, unless told otherwise."""

    def __init__(self, *, follows: bool = True, rejects: bool = True) -> None:
        self.done: list[str] = []
        self.follower = SimpleNamespace(answer=lambda error: self._note(f"schema {error}") and follows)
        self.rejects = SimpleNamespace(create=lambda: self._note("rejects")) if rejects else None

    def keep_sources(self, found: dict[str, str]) -> None:
        if "" in found.values():
            raise InvalidOptionError("impossible")
        self._note(f"sources {found}")

    def _note(self, text: str) -> bool:
        self.done.append(text)
        return True


def answered(run: Any, *errors: StreamlakeError, requests: Any = None) -> Any:
    return (requests or Requests(TABLE_HANDLERS)).answer(AskedTable(run, Aim(None)), errors)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("errors", "kind", "done"),
    [
        ([NO_REJECTS, BAD], NoRejectsTableError, ["rejects"]),
        ([DAMAGED, WIDER], IndexDamagedError, []),
        ([BAD, SOURCE], NewSourceError, ["sources {'topic': 'shop.users'}"]),
        ([WIDER, MORE], NewSchemaError, ["schema wider", "schema more"]),
    ],
)
def test_who_answers(errors: list[StreamlakeError], kind: type, done: list[str]) -> None:
    run = Run()
    assert answered(run, *errors) is kind
    assert run.done == done


@pytest.mark.parametrize(
    ("errors", "left"),
    [
        ([WIDER, BAD], BAD),
        ([BAD, NO_REJECTS], BAD),
        ([BAD, DAMAGED], BAD),
        ([MISPLACED], MISPLACED),  # the run looks nothing up
        ([SchemaMismatchError("x"), WIDER], SchemaMismatchError),
        ([NewSourceError("new", "topic", "")], InvalidOptionError),
    ],
)
def test_what_is_left(errors: list[StreamlakeError], left: Any) -> None:
    run = Run()
    found = answered(run, *errors)
    assert found is left or type(found) is left
    assert run.done == []


def test_without_rejects_and_where_the_schema_stays_nothing_is_answered() -> None:
    assert answered(Run(rejects=False), NO_REJECTS) is NO_REJECTS
    assert answered(Run(follows=False), WIDER, MORE) is WIDER


def test_an_answer_that_fails_is_the_tables_error() -> None:
    def fail() -> None:
        raise StorageError("away")

    run = Run()
    run.rejects = SimpleNamespace(create=fail)
    assert type(answered(run, NO_REJECTS)) is StorageError


@pytest.mark.parametrize(
    ("error", "most"), [(NO_REJECTS, 1), (DAMAGED, 1), (WIDER, MAX_CHANGES), (SOURCE, None)]
)
def test_writing_again_comes_to_an_end(error: StreamlakeError, most: int | None) -> None:
    requests, run = Requests(TABLE_HANDLERS), Run()
    for _ in range(most or 100):
        assert answered(run, error, requests=requests) is type(error)
    if most is not None:
        assert answered(run, error, requests=requests) is error
