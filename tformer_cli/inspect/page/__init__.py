"""The report page: one HTML file with a script, filled with data."""
