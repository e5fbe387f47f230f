"""The project's own rules, held true: one `pytest` runs the linters, the types, and the import contracts too."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pyspark.sql.pandas.utils
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "streamlake"
MAX_MODULE_LINES = 500
INSTALLED_ELSEWHERE = {"streamlake/pipeline/spark_lookup.py": "pyspark_streamlake.py"}
"""As the wheel's `force-include` says: Spark looks for data sources in modules of that name."""

CHECKS = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
    "lint-imports": ["lint-imports"],
}

MODULES_OF_CONTRACTS = """
    errors options records clock ids failpoints spec/types storage/file_io formats/parquet index/runs table/table table/append_files
    table/overwrite_files table/replace_partitions table/row_delta table/snapshot_producer source/fetch decode/json write/task
    read/scan catalog/hadoop checkpoint/staging commit/committer maintain/compact tables pipeline/sink cli/main
"""

ALLOWED_IMPORTS = {
    "table/append_files": "streamlake.table.table",
    "commit/committer": "streamlake.table.append_files",
    "pipeline/sink": "pyspark",
    "source/fetch": "kafka",
}

BROKEN_IMPORTS = {
    "a layer imports upwards": ("Imports go down only", "formats/parquet", "streamlake.table.table"),
    "siblings of a layer import each other": (
        "Imports go down only",
        "read/scan",
        "streamlake.catalog.hadoop",
    ),
    "errors import a room": ("Imports go down only", "errors", "streamlake.spec.types"),
    "an unlisted room appears": ("Imports go down only", "attic/box", "streamlake.errors"),
    "an executor's room commits": (
        "Executors write files, only the driver commits",
        "write/task",
        "streamlake.table.table",
    ),
    "decoding looks into the table": (
        "Executors write files, only the driver commits",
        "decode/json",
        "streamlake.table.table",
    ),
    "the pipeline builds a snapshot": (
        "Only commit and maintain build snapshots",
        "pipeline/sink",
        "streamlake.table.append_files",
    ),
    "the facade builds a snapshot": (
        "Only commit and maintain build snapshots",
        "tables",
        "streamlake.table.overwrite_files",
    ),
    "the reader builds a row delta": (
        "Only commit and maintain build snapshots",
        "read/scan",
        "streamlake.table.row_delta",
    ),
    "a writer task imports Spark": ("Only pipeline and cli know Spark", "write/task", "pyspark.sql"),
    "the pipeline imports a Kafka client": ("Only source knows a Kafka client", "pipeline/sink", "kafka"),
    "the specification does I/O": ("The specification's values import no library", "spec/types", "pyarrow"),
    "a room has a cycle": ("No cycle in any room", "table/table", "streamlake.table.append_files"),
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


def test_readme_lists_the_rooms() -> None:
    assert _rooms_of_readme() == _rooms_of_package()


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


def test_import_is_cheap() -> None:
    code = "import sys, streamlake; print(*sorted({'pyspark', 'pyarrow', 'numpy', 'kafka', 'fastavro'} & set(sys.modules)))"
    done = _run([sys.executable, "-c", code], cwd=ROOT)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_public_names_exist() -> None:
    import streamlake

    assert set(streamlake.__all__) <= set(dir(streamlake))
    for name in streamlake.__all__:
        assert getattr(streamlake, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = streamlake.nonsense


def _lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return _run([_tool("lint-imports"), "--no-cache"], cwd=folder, PYTHONPATH=str(folder))


def _module(folder: Path, name: str) -> Path:
    path = folder / "streamlake" / f"{name}.py"
    for package in (path.parent, folder / "streamlake"):
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
    return path


def _rooms_of_package() -> set[str]:
    rooms = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    return rooms | {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}


def _rooms_of_readme() -> set[str]:
    section = re.search(r"^## Architecture$(.+?)(?=^## |\Z)", (ROOT / "README.md").read_text(), re.M | re.S)
    assert section, "README.md has no section '## Architecture'"
    tree = "\n".join(re.findall(r"^```\w*$\n(.*?)^```$", section[1], re.M | re.S))
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
