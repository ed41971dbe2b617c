"""The command line: the only place that knows Typer and rich.

One file a command: its flags in, one call of a workflow out, the result shown. Read `app` first
(how commands are found and errors shown), then `options` and `console` (what commands share), then
any command. Heavy packages are imported inside the functions that need them, so that
``tformer --help`` answers at once.
"""
