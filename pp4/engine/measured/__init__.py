"""The engine program of a measurement's arm: ``python -m pp4.engine.measured``."""
