"""Names, selections and roles of a model's attention heads.

Begin with `names.py`; `selectors.py` reads `--heads`, `roles.py` says what heads attend to.
"""
