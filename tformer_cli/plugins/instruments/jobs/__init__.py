"""Jobs of the instruments: an opened model and lines in, records out."""
