"""The worth of heads: the loss without each, its gradient, and pruning."""
