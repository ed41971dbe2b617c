"""Whole jobs, one a file: open, connect, run, return a value. The Python API of tformer.

Every command of the command line is one call of a function here, with the same words. Nothing here
prints; a long job reports to an observer or a callback.
"""
