"""The verifier on a GPU: two kernels, in integers but for one multiplication by a power of two."""
