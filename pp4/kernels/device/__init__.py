"""Device code of the fused kernel: small jit functions, no host logic."""
