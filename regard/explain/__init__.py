"""Pure functions from a trace to small dataclasses."""
