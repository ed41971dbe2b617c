"""The views: one file each, found by its ``VIEW``; see `inspect.view`."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from tformer_cli.inspect.view import View


@cache
def all_views() -> dict[str, View[Any]]:
    modules = (import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))
    views = [module.VIEW for module in modules if hasattr(module, "VIEW")]
    return {view.name: view for view in views}
