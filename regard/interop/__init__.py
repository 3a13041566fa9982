"""Checkpoints from and to other systems."""
