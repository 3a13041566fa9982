"""Small facts about a trace: head measures, every step to one weight, rollout, space."""
