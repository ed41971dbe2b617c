"""Studies: variants of a recipe, each trained with several seeds, and one table of all."""
