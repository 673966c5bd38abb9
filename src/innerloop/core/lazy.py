"""Names of a package that are loaded on first use, so that importing the package costs nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Set
from types import ModuleType
from typing import Any


def _package_class(hidden: Set[str]) -> type[ModuleType]:
    """Of packages with modules that are called as what they define: there the name means what is defined."""

    class Package(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:  # an import sets a module on its package
            own = name in hidden and isinstance(value, ModuleType)
            super().__setattr__(name, getattr(value, name) if own else value)

    return Package


def lazy(
    package: str, homes: Mapping[str, str], rooms: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose names live in other modules: ``{module: names}``."""
    # under ``else`` of ``if TYPE_CHECKING``: a type checker would take __getattr__ for any name there is not
    home_of = {name: home for home, names in homes.items() for name in names.split()}
    inside = rooms.split()
    hidden = {name for name, home in home_of.items() if home == f"{package}.{name}"}
    if hidden:
        sys.modules[package].__class__ = _package_class(hidden)

    def load(name: str) -> Any:
        """The object of that name, from the module that it lives in."""
        if name in inside:
            return importlib.import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(importlib.import_module(home_of[name]), name)

    def names() -> list[str]:
        """What ``dir`` lists: the names that are there, and those that have not been loaded yet."""
        return sorted({*vars(sys.modules[package]), *home_of, *inside})

    return load, names
