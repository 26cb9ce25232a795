"""The drafter's heads: the original greedy selector and the sampled one beside it."""
