"""Holding a receiving host: what may run, who owns it, and proof that it is gone."""
