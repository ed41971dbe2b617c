"""Quality of a corpus: checks of an example, repeats, and the commands that apply them."""
