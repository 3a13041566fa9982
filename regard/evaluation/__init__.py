"""Scores of translations, word alignments, and the report of `regard evaluate`."""
