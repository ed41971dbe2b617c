"""One head for one token, worked out step by step and checked against the model."""
