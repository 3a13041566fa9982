"""Where text and images become batches."""
