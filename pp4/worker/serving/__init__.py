"""Two ranks that serve: what the owner asks of them, and what each of them does."""
