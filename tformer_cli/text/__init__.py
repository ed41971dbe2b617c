"""Text into batches of token ids, and back."""
