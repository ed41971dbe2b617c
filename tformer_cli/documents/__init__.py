"""Documents: bytes in, bytes out, and only the text between is translated.

Read `segments` (text and the markup in it), `known_formats` (the table), `translating` (a document
by any translator) and `projection` (the place of markup in a translation).
"""
