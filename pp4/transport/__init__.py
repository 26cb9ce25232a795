"""Moving bytes to processes: one interface, no policy."""
