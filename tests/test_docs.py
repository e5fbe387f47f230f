"""The docs keep their word as far as that shows without Spark: examples compile and load, links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from streamlake.cli.commands.schema import pipeline_schema
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.pipeline.definition.running import PipelineRun
from tests.helpers.docs import DOCS, PAGES, README, Block, anchors, blocks, links
from tests.helpers.spark import ROOT

MAX_README_LINES = 200
REPORT = ROOT / "tests" / "bench" / "report" / "report.json"
PYTHON = [block for page in PAGES for block in blocks(page, "python")]
PIPELINES = [
    block
    for page in PAGES
    if page in (README, DOCS / "quickstart.md") or page.parent == DOCS / "guides"
    for block in blocks(page, "yaml")
    if not block.is_fragment
]
"""In the guides, a block of YAML is a whole pipeline file unless the page marks it as a fragment."""
SCHEMA = Draft202012Validator(json.loads(pipeline_schema()))


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_there_are_examples() -> None:
    assert len(PYTHON) >= 20
    assert len(PIPELINES) >= 15
    guides = {page.stem for page in (DOCS / "guides").glob("*.md")}
    assert guides == {
        block.page.stem for block in (*PYTHON, *PIPELINES) if block.page.parent == DOCS / "guides"
    }


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", PIPELINES, ids=str)
def test_a_pipeline_file_loads(block: Block) -> None:
    SCHEMA.validate(yaml.safe_load(block.text))
    environment = dict.fromkeys(re.findall(r"\$\{(\w+)", block.text), "value")
    run = PipelineRun(parse_pipeline(block.text, str(block), environment))
    assert run.pipeline.name, "an example that a reader copies has a name"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{named(page)} links to {link}, which is not there"
        if anchor:
            assert anchor in anchors(target), f"{named(page)} links to {link}, which is no heading there"


def test_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MAX_README_LINES


def test_readme_has_the_figures_of_the_report() -> None:
    figures = json.loads(REPORT.read_text())["figures"]
    known = {(each["ours"], each["peer"]) for each in figures if each["peer"] is not None}
    rows = re.findall(r"^\| [^|]+\| ([\d,.]+) [\w/]+ \| ([\d,.]+) [\w/]+ \|", README.read_text(), re.M)
    assert len(rows) >= 5
    for row in rows:
        digits = [len(text.partition(".")[2]) for text in row]
        shown = tuple(float(text.replace(",", "")) for text in row)
        rounded = {
            tuple(round(value, count) for value, count in zip(pair, digits, strict=True)) for pair in known
        }
        assert shown in rounded, f"no figure of the report is {row}"
