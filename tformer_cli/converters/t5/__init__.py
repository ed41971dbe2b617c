"""T5 and what has its layers: T5 1.1, mT5, ByT5, MADLAD-400 and their fine-tuned models."""
