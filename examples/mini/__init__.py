"""A small target and its drafter, trained on the source of Python's standard library."""
