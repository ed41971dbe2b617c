"""Models of other tools, made into model directories and back.

Begin at `recognizing` (whose a file is), `foreign_model` (weights by a table of names) and `keys`
(no setting is read that a table does not know). A family is a table in `hugging_face/families` or a
module; `import_model` keeps the cache of imports; the plugin `interchange` has
`tformer export`, which writes the tables backwards, and the formats of Marian and CTranslate2.
"""
