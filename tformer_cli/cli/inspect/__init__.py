"""The inspection commands, one a file, and the options they share.

Begin with `inspect_view`: the options and the body that commands share, and a command for every
view of `inspect.views`. Options that a view knows are fields of its settings there.
"""
