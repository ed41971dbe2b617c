"""A model in one HTML file, computed in the browser."""
