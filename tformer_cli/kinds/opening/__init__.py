"""Opening a model directory for translation; `translator` joins the steps.

Read in this order: `settings`, `stored_model` (the model as it lies in its files), `precision`,
`ensemble`, `engines`, `translator`.
"""
