"""The inspection commands, one a file, and the options they share.

Read `options`, then `inspect_view`: the body that commands share, and a command for every view of
`inspection.views`. Options that a view knows are fields of its settings there.
"""
