"""Models of other tools, made into model directories, and back.

Begin with `import_model.py` and `hugging_face/families.py`, the table of families; `formats` opens
containers of named arrays without executing anything.
"""
