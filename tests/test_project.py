"""The project's own rules, held true: one `pytest` runs the linters, the types, and the import contracts too."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pyspark.sql.pandas.utils
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import streamlake
from streamlake.catalog import service
from tests.helpers.jars import ICEBERG_SPARKS

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "streamlake"
MAX_MODULE_LINES = 500
MAX_MODULES = 20
NAMED_ALIKE = {
    "avro_columns": "columns of Avro files, and of Avro records",
    "deletion_vectors": "their format, and their writer",
    "position_deletes": "their format, and their writer",
    "options": "of any kind, of a table's commits, of a table's files",
    "failpoints": "the places, and the command that lists them",
    "run": "of the key index, and the command",
    "schema": "of a table, and the command",
    "status": "what there is to say, and the command",
}
"""Names of modules that there are several of on purpose."""
INSTALLED_ELSEWHERE = {
    "streamlake/pipeline/kafka/spark_lookup.py": "pyspark_streamlake.py",
    "streamlake/pipeline/iceberg/frames/iceberg_lookup.py": "pyspark_streamlake_iceberg.py",
}
"""As the wheel's `force-include` says: Spark looks for data sources in modules of that name."""

CHECKS = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
    "lint-imports": ["lint-imports"],
}

MODULES_OF_CONTRACTS = """
    errors options records ahead clock ids wording on_progress failpoints storage/file_io index/runs/run index/runs/merge source/fetch read/scan catalog/hadoop
    spec/types/schema spec/partitioning/transforms spec/metadata/snapshot spec/expressions/binding
    formats/arrow/arrow_schema formats/columns/metrics formats/avro/avro_data formats/parquet/parquet formats/orc/orc
    formats/manifests/manifests formats/data_files formats/readers formats/deletes/puffin
    table/table table/operations table/options table/manifests/manifest_filter table/updates/retries table/schema/schema_edit
    table/producers/append_files table/producers/overwrite_files table/producers/replace_deletes table/producers/replace_manifests
    table/producers/replace_partitions table/producers/rewrite_files table/producers/row_delta
    table/producers/snapshot_producer decode/values/envelope decode/json/json_values decode/avro/avro_wire
    decode/converters/readings decode/registry/schema_registry decode/cdc/envelopes write/target/options write/rows/sort
    write/files/rolling write/deletes/deletion_vectors write/task write/task_writer write/upsert/upsert_task
    checkpoint/staging commit/committer maintain/compact/compaction tables catalogs tasks/intake pipeline/definition/running
    pipeline/sinks/sink
    pipeline/runs/micro_batch pipeline/key_index/table_index pipeline/direct/offset_log pipeline/kafka/direct_offsets pipeline/iceberg/table_cursor
    pipeline/spark/session
    operate/verify/verification demo/demo_driver cli/main
"""

ALLOWED_IMPORTS = {
    "table/producers/append_files": "streamlake.table.table",
    "commit/committer": "streamlake.table.producers.append_files",
    "pipeline/sinks/sink": "pyspark",
    "operate/verify/verification": "pyspark",
    "source/fetch": "kafka",
    "index/runs/merge": "streamlake.index.runs.run",
    "cli/main": "streamlake.operate.verify.verification",
}

BROKEN_IMPORTS = {
    "a layer imports upwards": ("Imports go down only", "formats/parquet/parquet", "streamlake.table.table"),
    "siblings of a layer import each other": (
        "Imports go down only",
        "read/scan",
        "streamlake.catalog.hadoop",
    ),
    "errors import a room": ("Imports go down only", "errors", "streamlake.spec.types.schema"),
    "an unlisted room appears": ("Imports go down only", "attic/box", "streamlake.errors"),
    "a run imports a sink": (
        "Inside pipeline imports go down only",
        "pipeline/runs/micro_batch",
        "streamlake.pipeline.sinks.sink",
    ),
    "a table as a source knows Kafka's": (
        "Inside pipeline imports go down only",
        "pipeline/iceberg/table_cursor",
        "streamlake.pipeline.kafka.direct_offsets",
    ),
    "the JSON decoder knows change events": (
        "Inside decode imports go down only",
        "decode/json/json_values",
        "streamlake.decode.cdc.envelopes",
    ),
    "a file writer knows upserts": (
        "Inside write imports go down only",
        "write/files/rolling",
        "streamlake.write.upsert.upsert_task",
    ),
    "Avro files know Parquet's": (
        "Inside formats imports go down only",
        "formats/avro/avro_data",
        "streamlake.formats.parquet.parquet",
    ),
    "manifests know what is committed": (
        "Inside table imports go down only",
        "table/manifests/manifest_filter",
        "streamlake.table.producers.row_delta",
    ),
    "a type knows snapshots": (
        "Inside spec imports go down only",
        "spec/types/schema",
        "streamlake.spec.metadata.snapshot",
    ),
    "an executor's room commits": (
        "Executors write files, only the driver commits",
        "write/task",
        "streamlake.table.table",
    ),
    "decoding looks into the table": (
        "Executors write files, only the driver commits",
        "decode/json/json_values",
        "streamlake.table.table",
    ),
    "a task commits": (
        "Tasks know neither Spark nor the commit",
        "tasks/intake",
        "streamlake.commit.committer",
    ),
    "a task looks into the checkpoint": (
        "Tasks know neither Spark nor the commit",
        "tasks/intake",
        "streamlake.checkpoint.staging",
    ),
    "the demo looks at a pipeline from outside": (
        "Only cli imports operate",
        "demo/demo_driver",
        "streamlake.operate.verify.verification",
    ),
    "the pipeline builds a snapshot": (
        "Only commit and maintain build snapshots",
        "pipeline/sinks/sink",
        "streamlake.table.producers.append_files",
    ),
    "the facade builds a snapshot": (
        "Only commit and maintain build snapshots",
        "tables",
        "streamlake.table.producers.overwrite_files",
    ),
    "the reader builds a row delta": (
        "Only commit and maintain build snapshots",
        "read/scan",
        "streamlake.table.producers.row_delta",
    ),
    "a writer task imports Spark": (
        "Only pipeline, operate and the demo know Spark",
        "write/task",
        "pyspark.sql",
    ),
    "the pipeline imports a Kafka client": (
        "Only source knows a Kafka client",
        "pipeline/sinks/sink",
        "kafka",
    ),
    "the specification does I/O": (
        "The specification's values import no library",
        "spec/types/schema",
        "pyarrow",
    ),
    "a room has a cycle": ("No cycle in any room", "index/runs/run", "streamlake.index.runs.merge"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_check_passes(name: str) -> None:
    tool, *arguments = CHECKS[name]
    done = _run([_tool(tool), *arguments], cwd=ROOT)
    assert done.returncode == 0, f"{name} found:\n{done.stdout}{done.stderr}"


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """A package with one empty module in each room and the contracts of this project; all of them hold there."""
    for module in MODULES_OF_CONTRACTS.split():
        _module(tmp_path, module).touch()
    for module, imported in ALLOWED_IMPORTS.items():
        _module(tmp_path, module).write_text(f"import {imported}\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_hold_on_the_skeleton(skeleton: Path) -> None:
    done = _lint_imports(skeleton)
    assert done.returncode == 0, done.stdout
    assert {contract for contract, _, _ in BROKEN_IMPORTS.values()} == set(
        re.findall(r"^(.+) KEPT$", done.stdout, re.M)
    )


@pytest.mark.parametrize("case", BROKEN_IMPORTS)
def test_contract_fails_on_a_bad_import(case: str, skeleton: Path) -> None:
    contract, importer, imported = BROKEN_IMPORTS[case]
    with open(_module(skeleton, importer), "a") as module:
        module.write(f"import {imported}\n")
    done = _lint_imports(skeleton)
    assert done.returncode == 1, done.stdout
    assert re.findall(r"^(.+) BROKEN$", done.stdout, re.M) == [contract]


def test_the_architecture_page_lists_the_rooms() -> None:
    assert _rooms_of_the_docs() == _rooms_of_package()


def test_readme_test_command_is_what_ci_runs() -> None:
    command = "python -m pip install '.[test]' && pytest -n 2"
    assert command in (ROOT / "README.md").read_text()
    assert command in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize(
    "module", sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
)
def test_module_is_documented_and_short(module: str) -> None:
    text = (PACKAGE / module).read_text()
    assert ast.get_docstring(ast.parse(text)), (
        f"{module} has no docstring: role, place in the flow, invariant"
    )
    assert len(text.splitlines()) <= MAX_MODULE_LINES


def test_no_folder_is_full() -> None:
    full = {
        str(folder.relative_to(ROOT)): count
        for folder in (PACKAGE, *PACKAGE.rglob("*/"))
        if (count := len([path for path in folder.glob("*.py") if path.name != "__init__.py"])) > MAX_MODULES
    }
    assert not full


def test_a_module_is_found_by_its_name() -> None:
    names = [path.stem for path in PACKAGE.rglob("*.py") if not path.name.startswith("__")]
    assert {name for name in names if names.count(name) > 1} == set(NAMED_ALIKE)


def test_installed_package_is_complete() -> None:
    """What pip installed holds every module of this checkout (an editable install holds them by reference)."""
    installed = distribution("streamlake")
    files = {str(path) for path in installed.files or ()}
    if any(path.endswith((".pth", "__editable__")) for path in files):
        files |= {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {INSTALLED_ELSEWHERE.get(path, path) for path in expected} <= files


def test_plain_install_has_what_spark_asks_for() -> None:
    """Spark's Arrow functions check the versions of libraries that this package never imports."""
    source = inspect.getsource(pyspark.sql.pandas.utils)
    required = [line for line in distribution("streamlake").requires or () if "extra ==" not in line]
    for name in ("pandas", "pyarrow"):
        found = re.search(rf'minimum_{name}_version = "([\d.]+)"', source)
        assert found, f"pyspark no longer says which {name} it needs"
        [ours] = [re.split(r">=", line)[1].split(",")[0] for line in required if line.startswith(name)]
        assert _numbers(ours) >= _numbers(found[1])[:2], f"{name}: {ours} is below {found[1]}"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def test_the_version_is_in_one_place() -> None:
    project = _project()
    assert "version" in project["dynamic"]
    assert "version" not in project
    assert distribution("streamlake").version == streamlake.__version__


def test_every_extra_can_be_installed() -> None:
    extras = _extras()
    for name, lines in extras.items():
        assert lines, f"the extra {name} brings nothing"
        for line in lines:
            wanted = Requirement(line)
            if wanted.name == "streamlake":
                assert wanted.extras <= set(extras), f"{name}: {line}"


def test_the_extra_all_is_all_extras_of_users() -> None:
    extras = _extras()
    [everything] = extras["all"]
    assert Requirement(everything).extras == set(extras) - {"all", "docs", "test", "test-tools"}


def test_messages_name_extras_that_exist() -> None:
    named = {
        extra.strip()
        for path in PACKAGE.rglob("*.py")
        for names in re.findall(r"streamlake\[([a-z, -]+)\]", path.read_text())
        for extra in names.split(",")
    }
    assert named
    assert named | set(service._EXTRAS.values()) <= set(_extras())


def test_the_tests_run_with_a_spark_that_iceberg_has_a_runtime_for() -> None:
    [ours] = [
        Requirement(line).specifier for line in _extras()["test"] if Requirement(line).name == "pyspark"
    ]
    assert any(f"{line}.0" in ours for line in ICEBERG_SPARKS)
    assert not any(version in ours for version in ("3.5.9", "4.2.0", "5.0.0"))
    [users] = [
        Requirement(line).specifier for line in _project()["dependencies"] if line.startswith("pyspark")
    ]
    assert users == SpecifierSet(">=4.0,<5")


def test_workflow_runs_ci_with_every_python_and_spark() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = workflow["jobs"]["test"]
    pythons = {
        line.removeprefix("Programming Language :: Python :: ")
        for line in _project()["classifiers"]
        if re.search(r"Python :: 3\.\d+$", line)
    }
    assert set(job["strategy"]["matrix"]["python"]) == pythons
    for extra in job["strategy"]["matrix"]["include"]:
        assert Requirement(extra["pyspark"]).name == "pyspark"
    [run] = [step for step in job["steps"] if "run" in step]
    assert run["run"] == ".ci/run"
    assert list(run["env"]) == ["STREAMLAKE_PYSPARK"]
    assert "$STREAMLAKE_PYSPARK" in (ROOT / ".ci" / "run").read_text()


def test_changelog_keeps_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.M)[0] == "[Unreleased]"
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.M)) <= kinds


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_between_project_files_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", (ROOT / name).read_text()):
        assert (ROOT / target).exists(), f"{name} links to {target}"


def test_license_is_in_full() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_import_is_cheap() -> None:
    code = "import sys, streamlake; print(*sorted({'pyspark', 'pyarrow', 'numpy', 'kafka', 'fastavro'} & set(sys.modules)))"
    done = _run([sys.executable, "-c", code], cwd=ROOT)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_public_names_exist() -> None:
    assert set(streamlake.__all__) <= set(dir(streamlake))
    for name in streamlake.__all__:
        assert getattr(streamlake, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = streamlake.nonsense


def _project() -> dict[str, Any]:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project: dict[str, Any] = toml.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def _extras() -> dict[str, list[str]]:
    extras: dict[str, list[str]] = _project()["optional-dependencies"]
    return extras


def _lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return _run([_tool("lint-imports"), "--no-cache"], cwd=folder, PYTHONPATH=str(folder))


def _module(folder: Path, name: str) -> Path:
    path = folder / "streamlake" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    for package in path.parents:
        if package == folder:
            break
        (package / "__init__.py").touch()
    return path


def _rooms_of_package() -> set[str]:
    rooms = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    rooms |= {f"{path.parent.name}/" for path in PACKAGE.glob("pipeline/*/__init__.py")}
    return rooms | {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}


def _rooms_of_the_docs() -> set[str]:
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text()
    tree = "\n".join(re.findall(r"^```\w*$\n(.*?)^```$", page, re.M | re.S))
    assert "streamlake/" in tree, "the architecture page has no tree of the package"
    return set(re.findall(r"^[ │├└─]+(\w+(?:/|\.py)) ", tree, re.M))


def _tool(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed: python -m pip install '.[test]'"
    return found


def _run(command: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}, timeout=240
    )
