"""Images as examples: named by text, read as bytes of pixels, turned into ids like a sentence.

Read `named` first: an image is a name (a file, one of many in a file, a row of numbers), so that
all that handles texts handles images, and its pixels are read when they are asked for. `decoding`
reads pictures and scales them; `idx` and `tables` read files of many; `tokenizer` makes ids of
pixels; `corpora` finds images with their labels.
"""
