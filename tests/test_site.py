"""The docs are a site: every page is in the navigation, and no link leads nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        ".mkdocs.yml",
        "-d",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "reference" / "api" / "index.html").read_text()
    assert "streamlake.IcebergSink" in page
    assert not (tmp_path / "site" / "generate.py").exists()
