"""Sampled DSpark selection: exact references and the fused kernel that equals them bit for bit."""
