"""What every run inside a HOLD has: programs that it asks, a worker, members of its receipt."""
