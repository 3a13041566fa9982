"""Model families: one per file, each read from top to bottom."""
