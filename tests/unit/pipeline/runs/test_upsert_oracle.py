"""Streams of changes against a model: random tables, changes, restarts, other writers, and a damaged index."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.helpers.oracle_plans import Plan, plans
from tests.helpers.oracle_run import OracleRun

EXAMPLES = int(os.environ.get("STREAMLAKE_ORACLE_EXAMPLES", "60"))
SECONDS_PER_EXAMPLE = 10


def run(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as home:
        OracleRun(plan, Path(home, "table")).run()


@pytest.mark.timeout(SECONDS_PER_EXAMPLE * EXAMPLES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)
@given(plans())
def test_tables_hold_what_the_stream_says(plan: Plan) -> None:
    run(plan)
