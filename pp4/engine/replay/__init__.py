"""Replays frozen held-out inputs through the producer that drafts and the verifier that decides."""
