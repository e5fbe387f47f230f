"""Rings: groups of tests that need a part which pip does not bring (a broker, Iceberg's own runtime).

A ring whose part cannot be had is skipped loudly: each test says why, and the run ends with a line per skipped ring.
Under `CI=true` there is no such mercy: the missing part is a failure.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

SKIPPED: dict[str, str] = {}


class PartUnavailableError(Exception):
    """A part of a ring could not be fetched or started; the message says which and why."""


def in_ci() -> bool:
    """True where a skipped ring must fail the run."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def give_up(ring: str, reason: object) -> NoReturn:
    """Skip the calling test (fail it in CI) because `ring` has no part to run on."""
    text = f"the {ring} ring cannot run: {reason}"
    if in_ci():
        pytest.fail(f"{text} (CI allows no skipped ring)", pytrace=False)
    SKIPPED[ring] = str(reason)
    pytest.skip(text)
