"""Figures: drawn once, as SVG (`svg`), in one palette (`palette`); `png` makes pixels of them."""
