"""A drafter's decoder layers on a GPU: what stands between their matrix products."""
