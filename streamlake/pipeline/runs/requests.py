"""The requests of tasks: what they cannot decide alone, and the handlers that answer them on the driver.

Place in the flow: after a job, with what its outcomes say about a table or about routed topics. A request
travels as the error that it becomes where nobody answers it. Invariant: a kind of request is answered so
often at most, and each answer changes something, so that writing again comes to an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from streamlake.errors import (
    IndexDamagedError,
    MisplacedKeyError,
    NewSchemaError,
    NewSourceError,
    NoRejectsTableError,
    StreamlakeError,
)
from streamlake.pipeline.runs.evolution import MAX_CHANGES
from streamlake.pipeline.runs.sink_run import SinkRun
from streamlake.pipeline.runs.source_notes import asked_sources
from streamlake.pipeline.runs.stages import Aim
from streamlake.pipeline.runs.upsert_run import UpsertRun
from streamlake.pipeline.spark.task_outcome import lasting_error

Asked = TypeVar("Asked")
Errors = Sequence[StreamlakeError]
_ANY_NUMBER = 1 << 62


@dataclass(frozen=True)
class Handler(Generic[Asked]):
    """Answers one kind of request, at most `most` times. `among` says of the errors which of them have to be
    of the kind. `answer` says whether it has changed something; it may raise what remains of the request.
    """

    kind: type[StreamlakeError]
    among: Callable[[Iterable[bool]], bool]
    answer: Callable[[Asked, Errors], bool]
    most: int = _ANY_NUMBER


@dataclass
class Requests(Generic[Asked]):
    """The requests of one table, or of routed topics, in one write; earlier handlers go first."""

    handlers: Sequence[Handler[Asked]]
    answered: Counter[type[StreamlakeError]] = field(default_factory=Counter)

    def answer(self, asked: Asked, errors: Errors) -> type[StreamlakeError] | StreamlakeError:
        """The kind of request that was answered, so that the records are to be written again; else the error
        that remains.
        """
        for each in self.handlers:
            is_asked = each.among(isinstance(error, each.kind) for error in errors)
            if not is_asked or self.answered[each.kind] >= each.most:
                continue
            self.answered[each.kind] += 1
            try:
                if each.answer(asked, errors):
                    return each.kind
            except StreamlakeError as error:
                return error
        return lasting_error(errors)


@dataclass(frozen=True)
class AskedTable:
    """The table that tasks ask about: its run, and what the tasks got."""

    run: SinkRun
    aim: Aim


def first(flags: Iterable[bool]) -> bool:
    """Whether the first error is of the kind; it is the one that ended the table's tasks."""
    return next(iter(flags))


def _rejects_made(asked: AskedTable, errors: Errors) -> bool:
    if asked.run.rejects is None:
        return False
    asked.run.rejects.create()
    return True


def _index_rebuilt(asked: AskedTable, errors: Errors) -> bool:
    return True  # the next aim takes a new one


def _sources_kept(asked: AskedTable, errors: Errors) -> bool:
    asked.run.keep_sources(asked_sources(errors))
    return True


def _shuffled(asked: AskedTable, errors: Errors) -> bool:
    if not isinstance(asked.run, UpsertRun):
        return False
    misplaced = next(error for error in errors if isinstance(error, MisplacedKeyError))
    asked.run.shuffle_instead(misplaced, asked.aim)
    return True


def _schema_followed(asked: AskedTable, errors: Errors) -> bool:
    follower = asked.run.follower
    changed = [follower.answer(error) for error in errors if isinstance(error, NewSchemaError)]
    return any(changed)


TABLE_HANDLERS: tuple[Handler[AskedTable], ...] = (
    Handler(NoRejectsTableError, first, _rejects_made, most=1),
    Handler(IndexDamagedError, first, _index_rebuilt, most=1),
    Handler(NewSourceError, any, _sources_kept),
    Handler(MisplacedKeyError, any, _shuffled),
    Handler(NewSchemaError, all, _schema_followed, most=MAX_CHANGES),
)
"""The requests of one table's tasks. A schema is changed only where nothing else is wrong."""
