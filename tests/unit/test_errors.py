"""Errors cross from executors to the driver, so every one of them pickles."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from streamlake.errors import StreamlakeError


def tree(kind: type[StreamlakeError]) -> Iterator[type[StreamlakeError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from tree(child)


@pytest.mark.parametrize("kind", sorted(set(tree(StreamlakeError)), key=lambda kind: kind.__name__))
def test_errors_pickle(kind: type[StreamlakeError]) -> None:
    error = kind("what happened, and what to do next")
    error.__cause__ = ValueError("why")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
