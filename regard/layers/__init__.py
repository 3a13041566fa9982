"""The modules that models are built of; they take plain numbers."""
