"""Views of the instruments; see `inspect.view`."""
