"""Speed and memory compared with other libraries, for `regard bench`."""
