"""Settings of the whole process, which belongs to the command that runs in it.

Workflows, which other programs call, too, set nothing of the kind.
"""

from collections.abc import Callable
from functools import partial

from tformer_cli.errors import UsageError


def prepare_torch(threads: int = 0) -> None:
    """Sets torch's threads and how they wait, its products and the allocator. Imports torch."""
    from tformer_cli.acceleration import has_fast
    from tformer_cli.runtime import prepare_cpu, set_threads

    try:
        set_threads(threads)
    except ValueError as error:
        raise UsageError(f"--threads: {error}") from None
    prepare_cpu()
    if has_fast():
        from tformer_cli.fast.native.threads import be_polite

        be_polite()


def torch_preparation(threads: int = 0) -> Callable[[], None]:
    """Makes the `before_torch` of `open_translator`; sets at once what does not need torch."""
    from tformer_cli.runtime import keep_freed_pages

    keep_freed_pages()
    return partial(prepare_torch, threads)
