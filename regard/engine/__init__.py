"""Text in, text out, at the speed of the fastest engine that can run the model."""
