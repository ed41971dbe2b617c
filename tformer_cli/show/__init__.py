"""Results as documents, and their renderers: terminal, HTML, Markdown, LaTeX, SVG, PNG, PDF."""
