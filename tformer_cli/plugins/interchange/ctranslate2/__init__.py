"""CTranslate2's directories: `importing` puts together what `settings` and `vocabulary` read."""
