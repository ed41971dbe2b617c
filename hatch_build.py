"""Hatchling's hook: that of the kernels; without the folder `fast` there is nothing to build."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent


def get_build_hook() -> type[BuildHookInterface[Any]]:
    """Finds the hook; see `tformer_cli/fast/native/build_hook.py` for what the environment says."""
    if not (ROOT / "tformer_cli/fast").is_dir():
        return type("NoHook", (BuildHookInterface,), {})
    sys.path.insert(0, str(ROOT))
    from tformer_cli.fast.native.build_hook import KernelsHook

    return KernelsHook
