"""The JSON schema of pipeline files and their strict parser: what one takes the other takes, key by key, value by value."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from streamlake.cli import main as cli
from streamlake.cli.commands.schema import pipeline_schema
from streamlake.decode.cdc.debezium import debezium_options
from streamlake.decode.json import json_options
from streamlake.decode.registry import registry_options
from streamlake.decode.value_formats import AVRO_SCHEMA
from streamlake.decode.values import record_limits
from streamlake.errors import InvalidOptionError
from streamlake.maintain.background.maintenance_settings import maintenance_options
from streamlake.pipeline.definition import pipeline_file
from streamlake.pipeline.definition.pipeline_file import AVRO_SCHEMA_FILE, FILE_FORMATS, parse_pipeline
from streamlake.pipeline.runs.evolution import LEVELS
from streamlake.pipeline.sinks.sink_settings import MODES
from streamlake.records import SEQUENCE
from streamlake.source import source_options
from streamlake.source.iceberg import iceberg_options
from streamlake.source.iceberg.iceberg_options import Strategy
from streamlake.source.kafka_source import FORMATS, METADATA_TYPES
from streamlake.write.upsert.upsert_target import DELETE_MODES
from tests.helpers.docs import PAGES, blocks
from tests.helpers.spark import ROOT

SCHEMA: dict[str, Any] = json.loads(pipeline_schema())
VALID = Draft202012Validator(SCHEMA)
KAFKA: dict[str, Any] = {
    "source": {"kafka": {"bootstrap-servers": "b:1", "topics": "t"}},
    "sink": {"table": "/t"},
    "checkpoint": "/c",
    "trigger": {"processing-time": "1 second"},
    "maintenance": {},
    "spark": {},
}
ICEBERG = {**KAFKA, "source": {"iceberg": {"table": "/lake/bronze"}}}
FILES = {**KAFKA, "source": {"files": {"path": "/in"}}}
RATE = {**KAFKA, "source": {"rate": {}}}
VALUES: list[Any] = [
    None, True, False, 0, 1, 7, -1, 1.5, "", "a", "7", "true", "TRUE", "${A:-7}", [], ["a"], [1], [True], [["a"]], {}, {"a": 1},
    {"a": [1]}, {"a": {"b": 1}}, {"a": None}, {"a": True},
]  # fmt: skip
"""What a key could be set to by mistake or on purpose."""


def properties(path: str, node: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The keys of the section at a dotted path, as the schema has them."""
    found = dict(SCHEMA if node is None else node)
    for key in filter(None, path.split(".")):
        found = found["properties"][key]
    return dict(found["properties"])


def accepted(content: Mapping[str, Any]) -> bool:
    try:
        parse_pipeline(json.dumps(content), "p.yaml", {})
    except InvalidOptionError:
        return False
    return True


def parsed_keys(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Every section that the parser looks at, with the keys that it knows there."""
    seen: dict[str, set[str]] = {}
    only = pipeline_file.Section.only

    def noting(section: Any, *keys: str) -> None:
        seen.setdefault(section.path, set()).update(keys)
        only(section, *keys)

    monkeypatch.setattr(pipeline_file.Section, "only", noting)
    for content in (KAFKA, ICEBERG, FILES, RATE):
        assert accepted(content)
    return seen


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_keys_are_those_of_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = parsed_keys(monkeypatch)
    assert seen.pop("trigger") == {
        key for each in properties("")["trigger"]["anyOf"] for key in each.get("properties", ())
    }
    assert {path: set(properties(path)) for path in seen} == seen


def test_single_tables_have_the_keys_of_all() -> None:
    """But for the name and the catalog."""
    own = set(properties("sink")["tables"]["additionalProperties"]["properties"])
    of_all = {"table", "catalog", "tables", "on-table-failure", "route", "default-table", "max-tables"}
    assert own == set(properties("sink")) - of_all
    for key in own:
        content = copy.deepcopy(KAFKA)
        content["sink"] = {"table": "lake.{topic}", "tables": {"lake.t": {key: [["a"]]}}}
        assert not accepted(content), key
        content["sink"]["tables"]["lake.t"] = {"keyy": "a"}
        assert not accepted(content)
        assert not VALID.is_valid(content)


def test_the_options_are_those_of_source_and_decoders() -> None:
    known = {
        *source_options._NAMES,
        *json_options._CHOICES,
        *registry_options._NAMES,
        *debezium_options._CHOICES,
        *(record_limits.PREFIX + name for name in record_limits._BOUNDS),
        AVRO_SCHEMA,
        AVRO_SCHEMA_FILE,
    }
    assert set(properties("source.kafka.options")) == known


def test_the_options_of_a_table_are_those_of_its_source() -> None:
    known = {each.name: each for each in iceberg_options.PROPERTIES}
    found = properties("source.iceberg.options")
    assert set(found) == known.keys() - {"tag", "snapshot-id", "as-of-timestamp"}
    for name, node in found.items():
        default = node.get("default", "")
        text = str(default).lower() if isinstance(default, bool) else str(default)
        assert (node["description"], text) == (known[name].meaning, known[name].default), name


def test_the_options_of_maintenance_are_those_of_its_settings() -> None:
    known = {each.name: each for each in maintenance_options()}
    found = properties("maintenance")
    assert found.keys() == known.keys()
    for name, node in found.items():
        assert (node["description"], str(node.get("default", ""))) == (
            known[name].meaning,
            known[name].default,
        ), name


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("source.iceberg.options/starting-strategy", tuple(each.value for each in Strategy)),
        ("source.kafka.format", FORMATS),
        ("source.kafka.include", (*METADATA_TYPES, SEQUENCE)),
        ("source.files.format", FILE_FORMATS),
        ("sink.mode", MODES),
        ("sink.delete-mode", DELETE_MODES),
        ("sink.schema-evolution", LEVELS),
        *(
            (f"source.kafka.options/{name}", choices)
            for choices_of in (json_options._CHOICES, debezium_options._CHOICES)
            for name, choices in choices_of.items()
            if choices
        ),
    ],
)
def test_the_choices_are_those_of_the_code(path: str, values: tuple[str, ...]) -> None:
    parent, _, key = path.partition("/") if "/" in path else path.rpartition(".")
    node = properties(parent)[key]
    node = SCHEMA["$defs"]["part"] if key == "include" else node
    [enum] = [each["enum"] for each in node["anyOf"] if "enum" in each]
    assert {value for value in enum if value is not None} == set(values)


def leaves() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every section with a key to be set, and a document to set it in."""
    for base, sections in (
        (KAFKA, ("", "source", "source.kafka", "sink", "trigger", "spark")),
        (ICEBERG, ("source.iceberg",)),
        (FILES, ("source.files",)),
        (RATE, ("source.rate",)),
    ):
        for section in sections:
            keys = {"processing-time"} if section == "trigger" else set(properties(section))
            for key in sorted(
                keys - {"kafka", "iceberg", "files", "rate", "select", "where", "available-now"}
            ):
                yield f"{section}.{key}".lstrip("."), base


@pytest.mark.parametrize(("path", "base"), [pytest.param(path, base, id=path) for path, base in leaves()])
def test_values(path: str, base: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema takes what the parser takes. It may know better where only certain words are right: the source or the sink
    refuses the others later."""
    monkeypatch.setattr(
        pipeline_file, "read_yaml", lambda text, _: (json.loads(text), {})
    )  # The same, and much faster.
    for value in VALUES:
        content = copy.deepcopy(base)
        *parents, key = path.split(".")
        section = content
        for parent in parents:
            section = section[parent]
        section[key] = value
        if key == "topic-pattern":
            del section["topics"]
        if key in ("route", "default-table", "max-tables"):
            section["table"] = "/t/{topic}"
        by_schema, by_parser = VALID.is_valid(content), accepted(content)
        if by_schema != by_parser and key in ("topics", "topic-pattern") and value in (None, [], ""):
            continue
        if path == "source.iceberg.filter" and not by_parser and value not in ([], {}):
            continue  # texts that are no filter
        node = SCHEMA["$defs"]["part"] if key == "include" else _node(path)
        knows_better = any("enum" in each for each in node.get("anyOf", ())) or key in (
            "options",
            "topic-pattern",
        )
        is_variable = isinstance(value, str) and value.startswith("$")
        assert by_parser or not by_schema or is_variable, f"{path}: {value!r} is right by the schema only"
        assert by_schema or not by_parser or knows_better, f"{path}: {value!r} is right for the parser only"


def _node(path: str) -> dict[str, Any]:
    parent, _, key = path.rpartition(".")
    return {} if parent == "trigger" else dict(properties(parent)[key])


@pytest.mark.parametrize(
    "content",
    [
        {**KAFKA, "trigger": "available-now"},
        {**KAFKA, "trigger": {"available-now": True}},
        {**KAFKA, "trigger": None},
        {**FILES, "select": ["a", "b + 1"], "where": "a > 0"},
        {**KAFKA, "source": {"kafka": {"bootstrap-servers": ["a:1", "b:1"], "topic-pattern": "x.*"}}},
        {
            **ICEBERG,
            "source": {
                "iceberg": {
                    "table": "db.bronze",
                    "catalog": {"type": "hadoop", "warehouse": "/w"},
                    "filter": "amount > 10",
                    "columns": ["id", "amount"],
                    "options": {"start-snapshot-id": 42, "on-delete": "skip", "split-size": "64m"},
                }
            },
        },
        {
            **KAFKA,
            "source": {"kafka": {**KAFKA["source"]["kafka"], "options": {"kafka.sasl.mechanism": "PLAIN"}}},
        },
    ],
)
def test_what_is_right(content: dict[str, Any]) -> None:
    assert accepted(content)
    VALID.validate(content)


@pytest.mark.parametrize(
    "content",
    [
        {**KAFKA, "trigger": "now"},
        {**KAFKA, "trigger": {"available-now": False}},
        {**KAFKA, "trigger": {"available-now": True, "processing-time": "1 s"}},
        {**KAFKA, "source": {**KAFKA["source"], "rate": {}}},
        {**KAFKA, "source": {}},
        {**KAFKA, "source": {"iceberg": {}}},
        {**KAFKA, "source": {"iceberg": {"table": "/t", "topics": "a"}}},
        {**KAFKA, "source": {"iceberg": {"table": "/t", "options": {"source-tables": "a.b"}}}},
        {**KAFKA, "source": {"iceberg": {"table": "/t", "options": {"tag": "eod"}}}},
        {**KAFKA, "source": {"kafka": {"bootstrap-servers": "b:1", "topics": "t", "topic-pattern": "t"}}},
        {**KAFKA, "source": {"kafka": {"bootstrap-servers": "b:1"}}},
        {key: value for key, value in KAFKA.items() if key != "checkpoint"},
        {key: value for key, value in KAFKA.items() if key != "sink"},
        {**KAFKA, "triger": "available-now"},
        {**KAFKA, "sink": {"table": "/t", "partition_by": "a"}},
        {**KAFKA, "spark": {"masters": "x"}},
    ],
)
def test_what_is_wrong(content: dict[str, Any]) -> None:
    assert not accepted(content)
    assert not VALID.is_valid(content)


def test_every_key_is_documented() -> None:
    def check(node: Any, where: str) -> None:
        if isinstance(node, Mapping):
            for name, each in node.get("properties", {}).items():
                assert each.get("description", "available-now" in name), f"{where}.{name}"
                check(each, f"{where}.{name}")
            for name in ("anyOf", "oneOf", "allOf"):
                for each in node.get(name, ()):
                    check(each, where)

    check(SCHEMA, "")


def examples() -> list[Any]:
    """The pipeline files of the docs and of docker/."""
    texts = [block.text for page in PAGES for block in blocks(page, "yaml")]
    texts += [
        path.read_text() for path in sorted((ROOT / "docker").glob("*.yaml")) if "compose" not in path.name
    ]
    loaded = [yaml.safe_load(text) for text in texts]
    return [each for each in loaded if isinstance(each, dict) and {"source", "sink"} <= each.keys()]


@pytest.mark.parametrize("content", examples())
def test_the_examples(content: dict[str, Any]) -> None:
    VALID.validate(content)


def test_there_are_examples() -> None:
    assert len(examples()) >= 15


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["schema"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
