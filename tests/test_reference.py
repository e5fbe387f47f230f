"""The reference pages say what the code declares, and lack nothing that the code accepts."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from streamlake import IcebergSink, IcebergTables, KafkaSource, errors
from streamlake.cli.views.described import page_of
from streamlake.commit.receipt import CommitReceipt
from streamlake.decode.cdc.debezium import debezium_options
from streamlake.decode.json import json_options
from streamlake.decode.registry import registry_options
from streamlake.decode.value_formats import AVRO_SCHEMA
from streamlake.decode.values import record_limits
from streamlake.formats.columns.format_options import AvroCompression
from streamlake.pipeline.iceberg.frames import frame_options
from streamlake.pipeline.runs.commit_queue import queue_limit
from streamlake.pipeline.sinks.arguments.property_names import OF_OTHERS
from streamlake.source import source_options
from streamlake.source.iceberg import iceberg_options
from streamlake.storage.durability import wants_fsync
from streamlake.storage.locations import TableLocations
from streamlake.table import options as table_options
from streamlake.tables import LoadedTable
from streamlake.write.target.job_options import WRITE_OPTIONS
from streamlake.write.target.options import WriteOptions

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RUN = "run `python docs/generate.py`"
_PROPERTY = re.compile(r"(write|commit|schema|streamlake)\.[a-z-]+(\.[a-z-]+)*\.?")
_NO_PROPERTY = {
    *OF_OTHERS,  # Iceberg's, which other engines read
    "streamlake.start",  # Java's system properties of a query's ticks
    "streamlake.known",
    "streamlake.target",
    "write.object-storage.path",  # Iceberg has removed it; it is refused
    "write.folder-storage.path",
    "write.parquet.bloom-filter-enabled.column.",  # renamed with their columns, and left alone otherwise
    "write.parquet.bloom-filter-fpp.column.",
    "write.parquet.stats-enabled.column.",
}


def _generator() -> Any:
    spec = spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = _generator()


@pytest.mark.parametrize("page", [path.relative_to(DOCS).as_posix() for path in GENERATE.pages()])
def test_the_page_is_what_the_code_declares(page: str) -> None:
    text = (DOCS / page).read_text()
    assert text == GENERATE.generated(text), f"docs/{page} is out of date: {RUN}"


def test_every_part_is_on_a_page() -> None:
    text = "".join(path.read_text() for path in GENERATE.pages())
    assert set(re.findall(r"<!-- generated: ([\w-]+) -->", text)) == set(GENERATE.PARTS)


def test_the_sinks_arguments_are_there() -> None:
    known = {*inspect.signature(IcebergSink).parameters, *inspect.signature(IcebergTables).parameters}
    assert known - {"settings"} <= _named("sink-options")


def test_the_api_is_readable_as_a_file() -> None:
    """Without the site: calls with their arguments, and the fields of what comes back."""
    page = (DOCS / "reference" / "api.md").read_text()
    assert ":::" not in page
    for owner in (LoadedTable.scan, LoadedTable.scan_changes, IcebergSink, KafkaSource):
        for name in inspect.signature(owner).parameters:
            assert name == "self" or re.search(rf"^    {name}: ", page, re.MULTILINE), name
    assert {each.name for each in fields(CommitReceipt)} <= _named("api")


def test_a_required_option_is_called_so() -> None:
    page = (DOCS / "reference" / "cli.md").read_text()
    assert "| `--checkpoint-location DIR` | required |" in page
    assert "inspect._empty" not in page


def test_the_write_options_are_there() -> None:
    assert set(WRITE_OPTIONS) <= _named("write-options")


def test_the_sources_options_are_there() -> None:
    known = {
        *source_options._NAMES,
        *json_options._CHOICES,
        *registry_options._NAMES,
        *debezium_options._CHOICES,
        *(record_limits.PREFIX + name for name in record_limits._BOUNDS),
        AVRO_SCHEMA,
    }
    assert known <= _named("kafka-options")


def test_the_table_sources_options_are_there() -> None:
    assert {each.name for each in iceberg_options.PROPERTIES} <= _named("table-source-options")


def test_the_options_of_table_frames_are_there() -> None:
    declared = (*frame_options.PROPERTIES, *iceberg_options.PROPERTIES)
    assert {each.name for each in declared} <= _named("table-frame-options")


def test_every_property_that_the_code_names_is_there() -> None:
    """Table properties and entries of snapshot summaries, found by what their names look like."""
    named = _named("table-properties")
    absent = {
        text: path
        for path, text in _texts()
        if text not in _NO_PROPERTY
        and not any(name == text or name.startswith(f"{text.rstrip('.')}.") for name in named)
    }
    assert not absent


def test_every_property_that_is_read_is_declared() -> None:
    """What the parsers ask a table's properties for, whose names are put together in part."""
    declared = {each.name for each in GENERATE.declared_properties()}
    asked = {name.replace("write.delete.", "write.") if name not in declared else name for name in _asked()}
    assert len(asked) > 30
    assert asked - _NO_PROPERTY <= declared


def test_the_declared_defaults_are_those_of_the_parsers() -> None:
    plain = {
        each.name: each.default
        for each in GENERATE.declared_properties()
        if each.default and " " not in each.default
    }
    given = {name: value for name, value in plain.items() if "<" not in f"{name}{value}"}
    given.pop("write.metadata.metrics.default")  # unset, it also depends on how many columns there are
    for parse in (
        WriteOptions.from_properties,
        table_options.RetryOptions.for_commit,
        table_options.RetryOptions.for_status_check,
        table_options.ManifestOptions.parse,
        table_options.MetadataOptions.parse,
        table_options.partition_summary_limit,
        wants_fsync,
        lambda properties: AvroCompression.from_properties(properties, "write.manifest"),
        lambda properties: queue_limit(None, properties, None),
        lambda properties: TableLocations("/t", properties).data_file("p", "name"),
    ):
        assert parse(given) == parse({})


def test_every_error_has_its_page() -> None:
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, errors.StreamlakeError):
            assert (ROOT / page_of(error)).is_file(), f"{name}: {page_of(error)}"


def test_every_page_of_an_error_is_of_one() -> None:
    known = {
        page_of(error)
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.StreamlakeError)
    }
    pages = {path.relative_to(ROOT).as_posix() for path in (DOCS / "operating" / "errors").glob("*.md")}
    assert pages - known == {"docs/operating/errors/index.md"}


def test_the_guards_are_where_the_page_says() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*)`", (DOCS / "internals" / "guards.md").read_text())
    assert len(named) > 25
    assert not [name for name in named if not (ROOT / "streamlake" / f"{name}.py").is_file()]


def _named(page: str) -> set[str]:
    """What stands in backquotes on a page of the reference."""
    return set(re.findall(r"`([^`\n]+)`", (DOCS / "reference" / f"{page}.md").read_text()))


def _texts() -> Iterator[tuple[str, str]]:
    """(module, text) of every text in the package that looks like a property's name."""
    modules = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for path in (ROOT / "streamlake").rglob("*.py")
    }
    packages = {name.removesuffix(".__init__") for name in modules}
    for path in (ROOT / "streamlake").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            text = node.value
            if _PROPERTY.fullmatch(text) and text.rstrip(".") not in packages | {"streamlake.cli.commands"}:
                yield str(path), text


class _Asking(dict[str, str]):
    """Properties that note what they are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return default

    def __contains__(self, key: object) -> bool:
        self.names.add(str(key))
        return False


def _asked() -> set[str]:
    properties = _Asking()
    WriteOptions.from_properties(properties)
    table_options.RetryOptions.for_commit(properties)
    table_options.RetryOptions.for_status_check(properties)
    table_options.ManifestOptions.parse(properties)
    table_options.MetadataOptions.parse(properties)
    table_options.partition_summary_limit(properties)
    AvroCompression.from_properties(properties, "write.manifest")
    queue_limit(None, properties, None)
    wants_fsync(properties)
    TableLocations("/t", properties).data_file("p", "name")
    return properties.names
