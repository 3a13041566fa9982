"""The explorer: HTTP API, background jobs, and the page."""
