"""Marian's models: `layout` names their parts; `importing` reads and `exporting` writes them."""
