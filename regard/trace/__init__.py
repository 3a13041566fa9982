"""What a model computed: kept, edited, and brought back tile by tile."""
