"""The drafter's client: drafts of a pp4 worker, over its socket."""

from dspark_runner.remote_dspark.client import KIND, Drafter, connect

__all__ = ["KIND", "Drafter", "connect"]
