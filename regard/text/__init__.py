"""Strings to token ids and back, on Hugging Face tokenizers; never torch."""
