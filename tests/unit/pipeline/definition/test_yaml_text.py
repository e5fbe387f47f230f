"""A pipeline file that is wrong as YAML, or holds a value of another kind, is answered in plain words with its line."""

from __future__ import annotations

import pytest

from streamlake.errors import InvalidOptionError
from streamlake.pipeline.definition.pipeline_file import parse_pipeline
from streamlake.pipeline.definition.trigger_interval import require_interval

RATE = "source: {rate: {}}\nsink:\n  table: /t\n"

NOT_YAML = [
    ("source:\n\trate: {}\n", "p.yaml is not valid YAML, line 2, column 1: there is a tab; indent with spaces"),
    ("source: {rate: {}\nsink: {table: t}\n", "p.yaml is not valid YAML, line 2, column 1: the { of line 1 is not closed before this"),
    ("topics: [a, b\nsink: t\n", "p.yaml is not valid YAML, line 2, column 5: the [ of line 1 is not closed before this"),
    ("name: a: b\n", "p.yaml is not valid YAML, line 1, column 8: a colon is out of place; indent keys of one mapping alike, and quote a text that holds ': '"),
    ("source:\n    kafka: 1\n  rate: 2\n", "p.yaml is not valid YAML, line 3, column 3: the indentation does not fit the lines before; indent keys of one mapping alike"),
    ("name: 'a\nsink: t\n", "the quotes of line 1 are not closed"),
    ("name: @a\n", "p.yaml is not valid YAML, line 1, column 7: the character '@' that cannot start any token; put the text between quotes"),
    ("name: a\nname: b\n", "p.yaml is not valid YAML, line 2, column 1: the key 'name' is given twice"),
    ("sink: {table: {{topic}}}\n", "p.yaml is not valid YAML, line 1, column 16: a key is a plain word. Put a text that begins with { or [ between quotes: '{topic}'"),
    ("? [a]\n: b\n", "a key is a plain word"),
]  # fmt: skip

OF_ANOTHER_KIND = [
    ("just a text", "p.yaml: a mapping of keys to values is needed here, not a text"),
    ("- a\n", "p.yaml: a mapping of keys to values is needed here, not a list"),
    (RATE + "  create: maybe\n", "p.yaml: sink.create must be true or false, not a text (line 4)"),
    (RATE + "  create: [true]\n", "p.yaml: sink.create must be true or false, not a list (line 4)"),
    (RATE + "  max-rejects: many\n", "p.yaml: sink.max-rejects must be a whole number, not a text (line 4)"),
    (RATE + "  max-rejects: 1.5\n", "p.yaml: sink.max-rejects must be a whole number, not a number (line 4)"),
    (RATE + "  mode: {a: b}\n", "p.yaml: sink.mode must be a text, not a mapping; put a text that begins with { or [ between quotes (line 4)"),
    (RATE + "  mode: true\n", "p.yaml: sink.mode must be a text, not true or false (line 4)"),
    (RATE + "  key: [a, {b: c}]\n", "p.yaml: sink.key must be a text or a list of texts, not a mapping in it; put a text that begins with { or [ between quotes (line 4)"),
    (RATE + "  key: [a, ~]\n", "p.yaml: sink.key must be a text or a list of texts, not nothing in it (line 4)"),
    (RATE + "  properties: [a]\n", "p.yaml: sink.properties: a mapping of keys to values is needed here, not a list (line 4)"),
    (RATE + "  properties:\n    a: ~\n", "p.yaml: sink.properties.a must be a text, a number, true or false, not nothing (line 5)"),
    (RATE + "  mdoe: append\n", "p.yaml: sink: unknown option 'mdoe'; did you mean 'mode'? (line 4)"),
    (RATE + "checkpoint: /c\ntrigger: 5\n", "p.yaml: trigger: a mapping of keys to values is needed here, not a number (line 5)"),
    ("source: {files: {path: /a, format: JSON}}\nsink: {table: t}\n", "p.yaml: source.files.format is 'JSON', which is not one of parquet, json, csv, orc, text; did you mean 'json'? (line 1)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), NOT_YAML + OF_ANOTHER_KIND)
def test_messages(text: str, message: str) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        parse_pipeline(text, "p.yaml", {})
    assert message in str(raised.value)
    assert not [
        word for word in ("NoneType", "dict", "int ", "bool", "<unicode string>") if word in str(raised.value)
    ]


@pytest.mark.parametrize(
    "text",
    ["10 seconds", "1 second", "1 minute 30 seconds", "0.5 seconds", "500 milliseconds", "INTERVAL 2 Hours", "10seconds", "0 seconds"],
)  # fmt: skip
def test_intervals(text: str) -> None:
    require_interval(text, "trigger")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("10 secnds", "there is no unit 'secnds' (did you mean 'seconds'?)"),
        ("10s", "there is no unit 's' (did you mean 'seconds'?)"),
        ("5 min", "there is no unit 'min' (did you mean 'minutes'?)"),
        ("10", "the unit is missing"),
        ("ten seconds", "a number and a unit are needed"),
        ("1 month", "Spark takes no month here"),
        ("-1 seconds", "it is negative"),
        ("0.5 minutes", "only seconds take a fraction"),
        (" ", "it is empty"),
    ],
)
def test_intervals_that_spark_does_not_read(text: str, problem: str) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        require_interval(text, "trigger.processing-time")
    assert str(raised.value) == (
        f"trigger.processing-time is '{text}': {problem}. Write a number and a unit, as in '10 seconds'; units are "
        "microseconds, milliseconds, seconds, minutes, hours, days, weeks"
    )
