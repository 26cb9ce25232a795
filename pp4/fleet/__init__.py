"""Many hosts of several GPUs: which pairs are qualified when, scripts for Slurm, who is suspect.

pp4 has no scheduler of its own: a plan is text, Slurm runs it, and a report reads the receipts that
the runs leave.  docs/fleet.md has the whole way.
"""
