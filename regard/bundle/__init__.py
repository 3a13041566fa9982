"""Model folders: a model with its tokenizer, configuration and card, saved whole or not at all."""
