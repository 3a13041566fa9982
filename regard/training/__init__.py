"""Training: recipes, data, objectives, the loop and its checkpoints."""
