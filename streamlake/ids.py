"""Random ids: every module takes them from here, so that a test can replay a run exactly."""

from __future__ import annotations

import uuid


def new_uuid() -> str:
    """A random UUID in canonical text form."""
    return str(uuid.uuid4())


def new_snapshot_id() -> int:
    """A positive random 63-bit snapshot id (spec: Appendix F, assignment of snapshot ids)."""
    raw = uuid.uuid4().int
    return ((raw >> 64) ^ raw) & 0x7FFF_FFFF_FFFF_FFFF
