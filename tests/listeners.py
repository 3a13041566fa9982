"""Listeners for tests that look at what is tapped."""


class Everybody:
    """Keeps every value by its path; wanting them all, it makes attention take the definition."""

    changes = False

    def __init__(self):
        self.seen = {}

    def wants(self, path: str) -> bool:
        return True

    def see(self, tapped):
        self.seen[tapped.path] = tapped.value
        return tapped.value
