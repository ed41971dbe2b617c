"""The door to `fast`, the folder of all that only makes tformer faster. Free of torch.

The folder may be missing: what it would compute, `model` and `decoding` compute more slowly. So
nothing outside imports from it but in a function, after a question here. Integers alone have no
plain counterpart, and engines that are asked for by name are in the folder or nowhere.
"""

from __future__ import annotations

import functools
from importlib.util import find_spec

from tformer_cli.errors import UsageError


@functools.cache
def has_fast() -> bool:
    """Returns whether the folder is there."""
    return find_spec("tformer_cli.fast") is not None


def require_fast(what: str) -> None:
    """Makes sure that the folder is there."""
    if not has_fast():
        raise UsageError(f"{what}: needs tformer_cli/fast, which is missing; install tformer again")
