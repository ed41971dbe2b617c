"""Documents: bytes in, bytes out; only the text changes.

Read `segments` (text with its markup), `known_formats` (the table), `translating` (a document with
any translator) and `projection` (placing markup in a translation).
"""
