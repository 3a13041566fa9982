"""From ids to ids: greedy, sampling and beam search, with their caches."""
