"""What `regard bench` measures: our speed and memory beside the peers', in one run."""
