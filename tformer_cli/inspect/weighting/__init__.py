"""Maps beyond attention weights: norms of values, attention rollout, ALTI+."""
