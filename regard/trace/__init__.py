"""Traces of forward passes: recorded, edited, saved, and read tile by tile."""
