"""Text in, text out: search, sampling, and the engines that run them."""
