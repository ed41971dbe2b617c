"""Results as documents, and their renderers: terminal, HTML, Markdown, LaTeX; figures as SVG, PNG.

Begin with `document`; `terminal`, `html` and `markup` each draw it. `curves` are the charts of
runs, which `chart` draws.
"""
