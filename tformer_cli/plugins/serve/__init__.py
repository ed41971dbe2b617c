"""A service over HTTP: the dialects of LibreTranslate and OpenAI, and one of our own.

Begin with `app.py`, which routes requests; `security.py` stands before it. `models.py` computes.
"""
