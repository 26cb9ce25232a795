"""The reference target: a small causal model of the Qwen3 family with a cache of fixed shape."""
