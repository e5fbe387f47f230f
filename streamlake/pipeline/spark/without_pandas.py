"""A shortcut that keeps pyarrow from importing pandas in processes that do not need pandas."""

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
    """Let pyarrow look for pandas now, and find none. pyarrow looks when an array is made from Python values,
    and imports pandas if it can, which costs half a second and 40 MB for nothing. If other code imports
    pandas later (a function that routes rows, a UDF), pyarrow gets it too.
    """
    if _PANDAS in sys.modules:
        return
    finder = _LaterPandas()
    sys.meta_path.insert(0, finder)
    pa.array([0])
    finder.is_decided = True


class _LaterPandas(MetaPathFinder):
    """Finds no pandas until the decision; afterwards, once pandas is loaded, makes pyarrow look again."""

    is_decided = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PANDAS:
            return None
        if not self.is_decided:
            raise ModuleNotFoundError(f"No module named '{_PANDAS}'", name=fullname)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader, self)
        return spec


class _Telling(Loader):
    """Loads as `loader` does, and makes pyarrow look again."""

    def __init__(self, loader: Loader, finder: _LaterPandas) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        sys.meta_path.remove(self._finder)
        lib._pandas_api.pd  # noqa: B018
