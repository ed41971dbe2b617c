"""Whole jobs, one a file: open, connect, run, return a value. The Python API of tformer.

Every command of the command line is one call of a function here, with the same words. Nothing here
prints; who wants to follow a long job passes an observer or a callback.
"""
