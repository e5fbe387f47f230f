"""`streamlake schema`: prints the JSON schema of pipeline files, for editors and checks."""

from __future__ import annotations

import sys
from importlib import resources

SCHEMA_FILE = "pipeline_schema.json"


def run() -> int:
    """Print the schema; returns the exit code."""
    sys.stdout.write(pipeline_schema())
    return 0


def pipeline_schema() -> str:
    """The JSON schema of a pipeline file, as text."""
    return (resources.files("streamlake.pipeline.definition") / SCHEMA_FILE).read_text(encoding="utf-8")
