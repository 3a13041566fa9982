"""Tokenizers: text to token ids and back; never imports torch."""
