"""Readers of other tools' files, each bounded by the size of the file that it reads.

Read `mapped_file` (bytes within bounds) and `lazy_arrays` (named arrays, read when asked for). No
reader executes anything, and damaged or hostile files are errors of one line.
"""
