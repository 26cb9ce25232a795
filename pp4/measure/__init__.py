"""Measurement under control: OFF against ON, in two HOLDs, each after its own gates."""
