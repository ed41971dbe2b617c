"""Commands of `tformer` other than the inspections, one a file.

Each translates its flags into one call of a workflow and shows what that returns. `translate` and
`train` are the longest walks; `info` is a short one to begin with.
"""
