"""Fair timing for the scripts of this folder; it lives in the package, for `regard bench`."""

from regard.bench.timing import about, alternate, table

__all__ = ["about", "alternate", "table"]
