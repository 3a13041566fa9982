"""Analyses of traces: measures of heads, single steps, rollout, space, and JSON for the page."""
