"""pp4 qualifies a physical pair of GPUs for sampled DSpark drafting and leaves evidence."""

__version__ = "0.1.0"
