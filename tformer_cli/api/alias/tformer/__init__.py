"""The name to import: ``import tformer`` gives all of ``tformer_cli``.

This folder does not belong to the package around it: an install puts it next to `tformer_cli`.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, cast

import tformer_cli

if TYPE_CHECKING:  # a type checker does not see that the module is replaced
    from importlib.abc import InspectLoader, Loader, MetaPathFinder

    from tformer_cli import LoadedModel as LoadedModel
    from tformer_cli import TformerError as TformerError
    from tformer_cli import __version__ as __version__
    from tformer_cli import evaluate as evaluate
    from tformer_cli import load as load
    from tformer_cli import train as train

    class _Importer(MetaPathFinder, Loader):
        pass
else:
    # The import system asks for methods only, and the module of their classes takes as long to
    # import as tformer itself
    _Importer = object


class _Alias(_Importer):
    """Imports ``tformer.X`` as ``tformer_cli.X``: a second copy would have classes of its own."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        if not name.startswith("tformer."):
            return None
        original = _find_original(name)
        if original is None:
            return None
        is_package = original.submodule_search_locations is not None
        spec = ModuleSpec(
            name, self, origin=original.origin, loader_state=original, is_package=is_package
        )
        spec.has_location = original.has_location  # `python -m` names the program by its file
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return import_module(_original(spec.name))

    def exec_module(self, module: ModuleType) -> None:
        # The import gave the module the specification of its other name, by which it would not
        # be reloaded, and would not be the package that its own imports say
        module.__spec__ = cast("ModuleSpec", module.__spec__).loader_state

    def get_code(self, fullname: str) -> CodeType | None:
        """Returns the code of a module, which ``python -m tformer`` runs."""
        original = _find_original(fullname)
        return cast("InspectLoader", original.loader).get_code(original.name) if original else None


def _find_original(name: str) -> ModuleSpec | None:
    from importlib.util import find_spec  # as many programs never ask for tformer.X

    return find_spec(_original(name))


def _original(name: str) -> str:
    return name.replace("tformer", "tformer_cli", 1)


# First, or the files that lie in the package's folder would be found under both names
sys.meta_path.insert(0, _Alias())
sys.modules["tformer"] = tformer_cli
