"""A package that adds a row to each table of tformer; the guide "Extending tformer" shows it."""
