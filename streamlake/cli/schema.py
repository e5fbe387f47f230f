"""`streamlake schema`: the JSON schema of pipeline files, for editors and for checks before anything is deployed."""

from __future__ import annotations

import sys
from importlib import resources

SCHEMA_FILE = "pipeline_schema.json"


def run() -> int:
    """Print the schema."""
    sys.stdout.write(pipeline_schema())
    return 0


def pipeline_schema() -> str:
    """The JSON schema of a pipeline file, as text."""
    return (resources.files("streamlake.pipeline") / SCHEMA_FILE).read_text(encoding="utf-8")
