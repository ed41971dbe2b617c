"""The inspection commands, one a file, and the options they share.

Read `options`, then `inspect_view` (a command for every view of `inspection.views`);
`inspect_heads` with its ``heads_*`` parts is the largest command.
"""
