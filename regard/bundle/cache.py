"""Where what was made once is kept between two runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where converted models are kept: $REGARD_CACHE, or the user's cache directory."""
    if given := os.environ.get("REGARD_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"
