"""What `benchmarks.race` and `benchmarks.steps` are made of."""
