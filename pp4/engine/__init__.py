"""A reference engine around a worker: a small target, decoding with drafts, replay, adapters."""
