"""Between a worker's proposals and an engine's own verifier: one handshake, one form."""
