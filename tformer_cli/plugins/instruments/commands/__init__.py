"""Commands of the instruments; views have theirs by their row."""
