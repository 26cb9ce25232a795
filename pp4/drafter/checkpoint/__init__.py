"""Published checkpoints of drafters: looked at without torch, and loaded in parts."""
