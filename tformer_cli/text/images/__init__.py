"""Images as examples: named by text, read as bytes of pixels, turned into ids like a sentence."""
