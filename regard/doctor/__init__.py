"""Proof instead of trust: what must not change a model's results, and that it does not."""
