"""A DSpark drafter: checkpoints, model, the original greedy selector and the branch beside it."""
