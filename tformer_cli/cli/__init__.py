"""The command line: the only place that knows Typer and rich.

Read `app` first (how commands are found and errors shown), then `options` and `streams` (shared by
all commands), then any file of `commands` or `inspect`: flags in, one call of a workflow out,
the result shown. Heavy packages are imported inside the functions that need them, so that
``tformer --help`` answers at once.
"""
