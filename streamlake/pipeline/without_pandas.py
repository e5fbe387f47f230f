"""A short cut for processes that make arrays from Python values and have no use for pandas."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

import pyarrow as pa
from pyarrow import lib

_PANDAS = "pandas"


def decide_about_pandas() -> None:
    """Let pyarrow find out now whether there is pandas, and find none: it looks when an array is made from Python values,
    imports it if it can, and that is half a second and 40 MB for nothing. Once somebody else imports pandas (a function
    that routes rows, a UDF), pyarrow has it too."""
    if _PANDAS in sys.modules:
        return
    finder = _LaterPandas()
    sys.meta_path.insert(0, finder)
    pa.array([0])
    finder.is_decided = True


class _LaterPandas(MetaPathFinder):
    """Finds no pandas until it is decided; then finds it once, and tells pyarrow."""

    is_decided = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PANDAS:
            return None
        if not self.is_decided:
            raise ModuleNotFoundError(f"No module named '{_PANDAS}'", name=fullname)
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader)
        return spec


class _Telling(Loader):
    """Loads as `loader` does, and has pyarrow look again."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        lib._pandas_api.pd  # noqa: B018
