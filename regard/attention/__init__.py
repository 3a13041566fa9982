"""Attention: one form per file, one signature for all."""
