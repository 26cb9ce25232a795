"""In the place of the drafter's client: it connects to nothing.

Preparation replaces this package with the one that talks to a worker.
"""

from dspark_runner.remote_dspark.drafter import KIND, Drafter, connect

__all__ = ["KIND", "Drafter", "connect"]
