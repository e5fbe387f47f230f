"""Writes the parts of the reference that the code declares itself: `python docs/generate.py`.

A page holds such parts between `<!-- generated: NAME -->` and `<!-- /generated -->`; what stands around them is written by
hand. tests/test_reference.py fails where a page differs from what the code declares.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import typer
from typer.models import ArgumentInfo, CommandInfo, ParameterInfo

import streamlake
from streamlake import errors
from streamlake.cli.commands.schema import pipeline_schema
from streamlake.cli.main import app
from streamlake.cli.views.described import page_of
from streamlake.decode.cdc import source_tables
from streamlake.formats.columns import format_options, metrics_config, name_mapping
from streamlake.maintain import rejects_retention, retention, row_deletion
from streamlake.maintain.background import lease, maintenance_settings
from streamlake.maintain.compact import compact_options
from streamlake.options import Property
from streamlake.pipeline.definition.pipeline_file import AVRO_SCHEMA_FILE
from streamlake.pipeline.iceberg.frames import frame_options
from streamlake.pipeline.runs import commit_queue, evolution, upsert_options
from streamlake.pipeline.sinks.sink import IcebergSink
from streamlake.pipeline.sinks.tables_sink import IcebergTables
from streamlake.source import client_options, source_options
from streamlake.source.iceberg import iceberg_options
from streamlake.source.kafka_source import KafkaSource
from streamlake.storage import durability, locations
from streamlake.table import options as table_options
from streamlake.write.target import job_options
from streamlake.write.target import options as write_options

DOCS = Path(__file__).parent
REPORT = DOCS.parent / "tests" / "bench" / "report" / "report.json"
SCHEMA: dict[str, Any] = json.loads(pipeline_schema())
PROPERTY_GROUPS: Mapping[str, tuple[ModuleType, ...]] = {
    "Files": (write_options, format_options, durability),
    "Where files go": (locations,),
    "Metrics and names of columns": (metrics_config, name_mapping),
    "Commits and metadata": (table_options, commit_queue),
    "Maintenance": (retention, rejects_retention, row_deletion, lease),
    "Upserts and change streams": (upsert_options, source_tables),
    "Schema": (evolution,),
}
"""Where table properties are declared, by the heading under which the page has them."""
_MEMBERS = {
    "IcebergSink": ("start",),
    "IcebergTables": ("start", "sinks", "quarantine"),
    "IcebergSource": (),
    "KafkaSource": (),
    "PostgresTable": (),
}
"""What a user calls of a class that other rooms call as well."""
_RETURNED = (
    "streamlake.tables.LoadedTable",
    "streamlake.read.scan.Scan",
    "streamlake.read.scan.TableScan",
    "streamlake.read.incremental.IncrementalAppendScan",
    "streamlake.read.changes.change_scan.ChangeScan",
    "streamlake.pipeline.direct.direct_query.DirectQuery",
    "streamlake.maintain.compact.compaction.Compaction",
    "streamlake.maintain.deletes.delete_conversion.ConvertedDeletes",
    "streamlake.maintain.expire.Expiry",
    "streamlake.maintain.orphans.Orphans",
    "streamlake.maintain.row_deletion.RowDeletion",
    "streamlake.maintain.table_drop.Dropped",
    "streamlake.maintain.manifest_rewrite.RewrittenManifests",
    "streamlake.maintain.upkeep.Upkeep",
    "streamlake.commit.receipt.CommitReceipt",
    "streamlake.operate.verify.verification.Verification",
    "streamlake.operate.doctor.diagnosis.Diagnosis",
)
_LINE = 100
"""Characters of a signature that stays in one line."""
_BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n)(.*?)(<!-- /generated -->)", re.DOTALL)


def main() -> None:
    """Write every page that has generated parts."""
    for path in pages():
        path.write_text(generated(path.read_text()))


def pages() -> list[Path]:
    """The pages with generated parts."""
    return [path for path in sorted(DOCS.rglob("*.md")) if _BLOCK.search(path.read_text())]


def generated(page: str) -> str:
    """The text of a page with its generated parts as the code has them now. Raises KeyError for a part that there is not."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]().strip()}\n\n{found[4]}", page)


def declared_properties() -> list[Property]:
    """Every table property that a module declares."""
    return [each for modules in PROPERTY_GROUPS.values() for module in modules for each in module.PROPERTIES]


def _sink_arguments() -> str:
    return _arguments(IcebergSink, leave_out=())


def _tables_arguments() -> str:
    return _arguments(IcebergTables, leave_out=("table", "catalog", "mode", "on_commit", "settings"))


def _arguments(owner: type, leave_out: tuple[str, ...]) -> str:
    texts = _section("sink")
    own = _docstring_arguments(IcebergSink.__doc__ or "")
    rows = []
    for name, parameter in list(inspect.signature(owner.__init__).parameters.items())[1:]:
        if name in leave_out:
            continue
        key = name.replace("_", "-")
        node = SCHEMA["properties"]["name"] if name == "pipeline" else texts.get(key)
        meaning = own[name] if node is None else _meaning(node)
        default = "" if parameter.default is inspect.Parameter.empty else _code(parameter.default)
        default = default or _default(node or {})
        rows.append((f"`{name}`", default, meaning))
    return _table(("argument", "default", "meaning"), rows)


def _docstring_arguments(docstring: str) -> dict[str, str]:
    """{argument: text} of a docstring's section `Args:`."""
    section = inspect.cleandoc(docstring).partition("Args:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: _escaped(" ".join(text.split())) for name, text in found}


def _source_arguments() -> str:
    texts = _section("source", "kafka")
    rows = []
    for part in fields(KafkaSource):
        default = "" if part.default is MISSING else _code(part.default)
        rows.append((f"`{part.name}`", default, _meaning(texts[part.name.replace("_", "-")])))
    return _table(("argument", "default", "meaning"), rows)


def _source_options() -> str:
    return _options_table(source_options._NAMES)


def _table_source_options() -> str:
    return _property_table(iceberg_options.PROPERTIES)


def _table_frame_options() -> str:
    return _property_table((*frame_options.PROPERTIES, *iceberg_options.PROPERTIES))


def _property_table(declared: Iterable[Property]) -> str:
    rows = [(f"`{each.name}`", _property_default(each.default), _escaped(each.meaning)) for each in declared]
    return _table(("option", "default", "meaning"), rows)


def _decoder_options(prefix: str) -> Callable[[], str]:
    def part() -> str:
        known = _section("source", "kafka", "options")
        names = [name for name in known if name.startswith(prefix)]
        return _options_table(names)

    return part


def _options_table(names: Iterable[str]) -> str:
    known = _section("source", "kafka", "options")
    rows = []
    for name in names:
        note = " In pipeline files only." if name == AVRO_SCHEMA_FILE else ""
        rows.append((f"`{name}`", _default(known[name]), _meaning(known[name]) + note))
    return _table(("option", "default", "meaning"), rows)


def _client_options() -> str:
    by_keyword: dict[str, list[str]] = {}
    for alias, keyword in client_options._ALIASES.items():
        by_keyword.setdefault(keyword, []).append(alias)
    rows = []
    for keyword in sorted(client_options.KNOWN):
        name = f"kafka.{keyword.replace('_', '.')}"
        others = [f"kafka.{alias}" for alias in by_keyword.get(keyword, ())]
        also = ", ".join(f"`{each}`" for each in others if each != name)
        rows.append((f"`{name}`", also, f"`{keyword}`"))
    taken = _table(("option", "also as", "kafka-python's name"), rows)
    oauth = _listed(f"kafka.{name}" for name in client_options._OAUTH)
    owned = _table(
        ("option", "why it is refused"),
        [(f"`kafka.{name.replace('_', '.')}`", _escaped(why)) for name, why in client_options._OWNED.items()],
    )
    return (
        f"{taken}\n\nFor OAUTHBEARER and for JAAS lines also: {oauth}, `kafka.sasl.jaas.config`.\n\n"
        f"These options would change which records are read, so they are refused:\n\n{owned}"
    )


def _write_options() -> str:
    texts = _section("sink", "write-options")
    rows = []
    for name in job_options.WRITE_OPTIONS:
        if name in job_options._PROPERTIES:
            over = f"`{job_options._PROPERTIES[name]}`"
        else:
            over = ", ".join(f"`write.{each}.{name}`" for each in job_options._FORMATS[name])
        rows.append((f"`{name}`", over, _meaning(texts[name])))
    return _table(("option", "takes the place of the table property", "meaning"), rows)


def _compact_options() -> str:
    rows = [
        (f"`{each.name}`", _property_default(each.default), _escaped(each.meaning))
        for each in compact_options.OPTIONS
    ]
    return _table(("option", "default", "meaning"), rows)


def _properties() -> str:
    parts = []
    for heading, modules in PROPERTY_GROUPS.items():
        rows = [
            (f"`{each.name}`", _property_default(each.default), _escaped(each.meaning))
            for module in modules
            for each in module.PROPERTIES
        ]
        parts.append(f"### {heading}\n\n" + _table(("property", "default", "meaning"), rows))
    return "\n\n".join(parts)


def _property_default(text: str) -> str:
    """A value as code, a sentence as it is."""
    return f"`{text}`" if text and " " not in text else _escaped(text)


def _pipeline_file() -> str:
    parts = [_keys("The file", SCHEMA)]
    source = SCHEMA["properties"]["source"]["properties"]
    parts += [_keys(f"source: {name}", source[name]) for name in source]
    parts.append(_keys("sink", SCHEMA["properties"]["sink"]))
    trigger = SCHEMA["properties"]["trigger"]
    choices = [each for each in trigger["anyOf"] if each.get("properties")]
    rows = [
        (f"`{name}`", "", _meaning({**each, **node}))
        for each in choices
        for name, node in each["properties"].items()
    ]
    parts.append(
        f"### trigger\n\n{_escaped(trigger['description'])}\n\n" + _table(("key", "default", "meaning"), rows)
    )
    parts.append(_maintenance())
    parts.append(_keys("spark", SCHEMA["properties"]["spark"]))
    return "\n\n".join(parts)


def _maintenance() -> str:
    node = SCHEMA["properties"]["maintenance"]
    rows = [
        (_code(each.name), _code(each.default), _escaped(each.meaning))
        for each in maintenance_settings.OPTIONS
    ]
    schedules = [
        (
            _code(action),
            ", ".join(
                f"{_code(name.replace('_', '-'))} {value}" for name, value in vars(schedule).items() if value
            ),
        )
        for action, schedule in maintenance_settings.DEFAULT_SCHEDULES.items()
    ]
    return "\n\n".join(
        (
            f"### maintenance\n\n{_escaped(node['description'])}",
            _table(("key", "default", "meaning"), rows),
            "The schedules by default:",
            _table(("action", "is due after"), schedules),
        )
    )


def _keys(heading: str, node: Mapping[str, Any]) -> str:
    required = node.get("required", ())
    rows = [
        (
            f"`{name}`" + (" (required)" if name in required else ""),
            _default(each),
            _meaning(each),
        )
        for name, each in node["properties"].items()
    ]
    return f"### {heading}\n\n{_escaped(node['description'])}\n\n" + _table(
        ("key", "default", "meaning"), rows
    )


def _commands() -> str:
    parts = []
    for name, command in _tree("streamlake", app):
        text = " ".join((command.help or inspect.getdoc(command.callback) or "").split())
        parts.append(f"### {name}\n\n{_escaped(text)}")
        rows = [
            _parameter(each)
            for each in inspect.signature(command.callback, eval_str=True).parameters.values()
        ]
        shown = [row for row in rows if row is not None]
        if shown:
            parts.append(_table(("argument or option", "default", "meaning"), shown))
    return "\n\n".join(parts)


def _tree(name: str, group: typer.Typer) -> Iterable[tuple[str, CommandInfo]]:
    for command in group.registered_commands:
        assert command.callback is not None
        yield f"{name} {command.name or command.callback.__name__}", command
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from _tree(f"{name} {inner.name}", inner.typer_instance)


def _parameter(parameter: inspect.Parameter) -> tuple[str, str, str] | None:
    """The row of an argument or option; None for what is neither."""
    infos = [each for each in get_args(parameter.annotation)[1:] if isinstance(each, ParameterInfo)]
    if not infos:
        return None
    [info] = infos
    kind = get_args(parameter.annotation)[0]
    if isinstance(info, ArgumentInfo):
        is_required = parameter.default is inspect.Parameter.empty
        return f"`{info.metavar}`", "required" if is_required else "", _escaped(info.help or "")
    given = (info.default, *(info.param_decls or ()))
    names = [each for each in given if isinstance(each, str)] or [f"--{parameter.name.replace('_', '-')}"]
    metavar = "" if kind is bool else f" {info.metavar or ('N' if 'int' in str(kind) else 'TEXT')}"
    is_shown = kind is not bool and parameter.default is not None
    is_required = parameter.default is inspect.Parameter.empty
    default = "required" if is_required else _code(parameter.default) if is_shown else ""
    return ", ".join(f"`{name}{metavar}`" for name in names), default, _escaped(info.help or "")


def _api() -> str:
    return "\n\n".join(
        _described(getattr(streamlake, name), f"streamlake.{name}", _MEMBERS.get(name), is_made=True)
        for name in sorted(streamlake._PUBLIC)
    )


def _returned() -> str:
    parts = []
    for path in _RETURNED:
        module, _, name = path.rpartition(".")
        parts.append(_described(getattr(import_module(module), name), name, None, is_made=False))
    return "\n\n".join(parts)


def _described(named: Any, heading: str, members: tuple[str, ...] | None, *, is_made: bool) -> str:
    """A class or a function in Markdown. `is_made`: users call it themselves."""
    name = heading.rpartition(".")[2]
    parts = [f"## {heading}"]
    if is_made:
        parts.append(_signature(name, named))
    if not isinstance(named, type):
        return "\n\n".join((*parts, _prose(named)))
    parts.append(_prose(named))
    base = named.__mro__[1]
    if f"{base.__module__}.{base.__name__}" in _RETURNED:
        parts.append(f"It also has what [{base.__name__}](#{base.__name__.lower()}) has.")
    if is_dataclass(named) and not is_made:
        rows = [
            (f"`{each.name}`", f"`{each.type}`".replace("|", "\\|"), _field_default(each))
            for each in fields(named)
        ]
        parts.append(_table(("field", "type", "default"), rows))
    own = [each for each in vars(named) if not each.startswith("_")] if members is None else members
    found = {each: getattr(named, each) for each in own}
    values = {each: value.fget for each, value in found.items() if isinstance(value, property)}
    if values:
        rows = [(f"`{each}`", _first_of(value)) for each, value in values.items()]
        parts.append(_table(("attribute", "meaning"), rows))
    for each, value in found.items():
        if inspect.isfunction(value):
            parts += [f"### {name}.{each}", _signature(each, value), _prose(value)]
    return "\n\n".join(parts)


def _signature(name: str, called: Any) -> str:
    """The call of a function or class, an argument a line where it is long."""
    signature = inspect.signature(called)
    shown = []
    for kind, group in groupby(signature.parameters.values(), key=lambda each: each.kind):
        is_named = kind is inspect.Parameter.KEYWORD_ONLY
        shown += ["*"] if is_named else []
        shown += [_argument(each) for each in group if each.name != "self"]
    result = signature.return_annotation
    arrow = "" if isinstance(called, type) or result is inspect.Signature.empty else f" -> {result}"
    line = f"{name}({', '.join(shown)}){arrow}"
    if len(line) > _LINE:
        line = "\n".join((f"{name}(", *(f"    {each}," for each in shown), f"){arrow}"))
    return f"```text\n{line}\n```"


def _argument(parameter: inspect.Parameter) -> str:
    text = str(parameter.replace(default=inspect.Parameter.empty)).replace("'", "")
    default = parameter.default
    if default is inspect.Parameter.empty:
        return text
    is_plain = isinstance(default, (str, int, float, tuple, type(None)))
    return f"{text} = {default!r}" if is_plain else f"{text} = ..."


def _field_default(part: Field[Any]) -> str:
    if part.default_factory is not MISSING:
        return "empty"
    return "" if part.default is MISSING else f"`{part.default!r}`"


def _prose(described: Any) -> str:
    """The text of a docstring, its arguments as a table."""
    docstring = inspect.getdoc(described) or ""
    text = _escaped(docstring.partition("Args:\n")[0].strip()).replace("\\|", "|")
    rows = [(f"`{name}`", meaning) for name, meaning in _docstring_arguments(docstring).items()]
    return f"{text}\n\n{_table(('argument', 'meaning'), rows)}" if rows else text


def _first_of(described: Any) -> str:
    """The first paragraph of a docstring, for a table's cell."""
    return _escaped(" ".join((inspect.getdoc(described) or "").split("\n\n")[0].split()))


def _figures() -> str:
    report = json.loads(REPORT.read_text())
    machine = report["machine"]
    rows = []
    for each in report["figures"]:
        peer = "" if each["peer"] is None else f"{_number(each['peer'])} ({each['peer_name']})"
        ratio = f"{each['ours'] / each['peer']:.2f}" if each["peer"] else ""
        rows.append(
            (
                _escaped(each["name"]),
                each["unit"],
                _number(each["ours"]),
                _escaped(peer),
                ratio,
                each["better"],
            )
        )
    head = f"{machine['cores']} cores, Python {machine['python']}, PySpark {machine['pyspark']}."
    return f"{head}\n\n" + _table(("measure", "unit", "streamlake", "peer", "ratio", "better is"), rows)


def _errors() -> str:
    rows = []
    for name, error in sorted(vars(errors).items()):
        if isinstance(error, type) and issubclass(error, errors.StreamlakeError):
            page = page_of(error).rpartition("/")[2]
            rows.append((f"[`{name}`]({page})", _escaped(" ".join((error.__doc__ or "").split()))))
    return _table(("error", "what it means"), rows)


def _section(*path: str) -> dict[str, Any]:
    node = SCHEMA
    for key in path:
        node = node["properties"][key]
    return dict(node["properties"])


def _meaning(node: Mapping[str, Any]) -> str:
    text = _escaped(str(node.get("description", "")))
    choices = [value for each in node.get("anyOf", ()) for value in each.get("enum", ()) if value is not None]
    words = [str(value) for value in choices if isinstance(value, str) and value not in ("true", "false")]
    return f"{text} One of {_listed(words)}." if words else text


def _default(node: Mapping[str, Any]) -> str:
    return _code(node["default"]) if "default" in node else ""


def _code(value: Any) -> str:
    return "" if value is None or value in ("", ()) else f"`{value}`"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:,.3g}"


def _escaped(text: str) -> str:
    """Text for a table's cell: nothing outside of backquotes is taken for markup."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*<])", r"\\\1", each) for each in parts[::2]]
    return "`".join(parts).replace("|", "\\|")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


PARTS: Mapping[str, Callable[[], str]] = {
    "sink-arguments": _sink_arguments,
    "tables-arguments": _tables_arguments,
    "write-options": _write_options,
    "source-arguments": _source_arguments,
    "table-source-options": _table_source_options,
    "source-options": _source_options,
    "table-frame-options": _table_frame_options,
    "json-options": _decoder_options("json."),
    "record-options": _decoder_options("record."),
    "avro-options": _decoder_options("avro."),
    "registry-options": _decoder_options("schema-registry."),
    "debezium-options": _decoder_options("debezium."),
    "client-options": _client_options,
    "table-properties": _properties,
    "compact-options": _compact_options,
    "pipeline-file": _pipeline_file,
    "commands": _commands,
    "api": _api,
    "returned": _returned,
    "figures": _figures,
    "errors": _errors,
}
"""What writes each part."""

if __name__ == "__main__":
    main()
