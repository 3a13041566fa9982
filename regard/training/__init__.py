"""Objective, schedule, loop and checkpoints."""
