"""tformer: train, use and understand Transformers, translation first.

`load` opens a model to call, `train` makes one, `evaluate` scores translations; every command calls
one function of its folder, such as `tformer_cli.train.train.train`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tformer_cli.errors import TformerError
from tformer_cli.version import __version__

if TYPE_CHECKING:
    from tformer_cli.api.functions import evaluate as evaluate  # noqa: TC004 - when asked for
    from tformer_cli.api.functions import load as load  # noqa: TC004 - when asked for
    from tformer_cli.api.functions import train as train  # noqa: TC004 - when asked for
    from tformer_cli.api.model import LoadedModel as LoadedModel  # noqa: TC004 - when asked for

__all__ = ["LoadedModel", "TformerError", "__version__", "evaluate", "load", "train"]
_PLACES = {
    "LoadedModel": "model", "evaluate": "functions", "load": "functions", "train": "functions",
}  # fmt: skip
"""Module of `tformer_cli.api` of each name that is imported once it is asked for."""


def _import_name(name: str) -> Any:  # noqa: ANN401 - what modules hold
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.api.{_PLACES[name]}"), name)


class _Package(ModuleType):
    """This package, whose folders `train` and `evaluate` bear the names of functions."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - what modules hold
        return _import_name(name)

    def __dir__(self) -> list[str]:
        return sorted(__all__)

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a folder puts it in the place of its name: there it has to work as the function
        if name in _PLACES and type(value) is ModuleType:
            value.__class__ = _Callable
        super().__setattr__(name, value)


class _Callable(ModuleType):
    """A folder that is called as the function of its name."""

    @property
    def __wrapped__(self) -> Any:  # noqa: ANN401 - `inspect.signature` asks for it
        return _import_name(self.__name__.rpartition(".")[2])

    def __call__(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        return self.__wrapped__(*args, **options)


sys.modules[__name__].__class__ = _Package
