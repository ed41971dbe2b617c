"""Commands of the built-in corpora."""
