"""Packages of this folder stay importable by their former name, with all that is in them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_MOVED = ("datasets", "models", "studies")
_ROOT = __name__.partition(".")[0]


class _SameModule(Loader):
    """Give the module that has the new name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system wrote that of the former name


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        root, _, inside = name.partition(".")
        if root != _ROOT or not inside.partition(".")[2] or inside.partition(".")[0] not in _MOVED:
            return None
        moved = f"{_ROOT}.paper.{inside}"
        found = importlib.util.find_spec(moved)
        return (
            None if found is None else ModuleSpec(name, _SameModule(moved), is_package=bool(found.submodule_search_locations))
        )


def move(name: str) -> None:
    """Let a module of the former name be the one in ``cafexai.paper``, and its modules those inside it."""
    sys.modules[name] = importlib.import_module(f"{_ROOT}.paper.{name.rpartition('.')[2]}")
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
