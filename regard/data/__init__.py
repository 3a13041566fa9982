"""Read text and images and group them into batches."""
