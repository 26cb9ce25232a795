"""The HOLD file that ``pp4 hold new`` writes: every key, each with a comment."""

from __future__ import annotations

from typing import Final

EXAMPLE: Final = """\
# A HOLD file: which host a run holds, how it is reached, and what happens there around it.
# docs/hold-file.md explains every key.  An unknown key is refused, and so is a value that cannot
# be meant.  Lines that begin with '#' and no space behind it show keys that are not needed, with
# their default values or an example.

[hold]
# What the HOLD is called: letters, digits, '.', '_' and '-'.
name = "first-pair"
# The host ends the HOLD after so many minutes, whatever happens: 1 to 90.
#bound_minutes = 90
# Without a heartbeat for so many seconds the host ends everything: 2 to 300.
#ttl = 30

[receiving_host]
# "ssh", or "local" for this machine; "local" has no address, port, user, identity_file, host_key,
# agent or jump.
transport = "ssh"
# Host name or IP address.
address = "gpu-host.example"
#port = 22
# The account; it needs no more rights than opening the GPUs takes.
user = "operator"
# The one private key that is offered.  A path on this machine; '~/' is your home.
identity_file = "~/.ssh/id_ed25519"
# The host's public key.  Ask whoever runs the host for /etc/ssh/ssh_host_ed25519_key.pub: a key
# is never accepted because it is new.  The one here is nobody's.
host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
# Whether the keys of an SSH agent may be offered too.
#agent = false
# The interpreter there, Python 3.11 or later: a name, or an absolute path (no ~).
#python = "/opt/pp4/bin/python"
# Journals and staged code of the account; default: its ~/.local/state/pp4.
#state_dir = "/srv/pp4-state"
# Locks and fences, the same for every user of the host.
#host_dir = "/var/lib/pp4"
# Two GPUs, rank 0 first, as 'nvidia-smi -L' names them; with transport "local" also "auto".
gpus = [
    "GPU-00000000-0000-0000-0000-000000000000",
    "GPU-00000000-0000-0000-0000-000000000001",
]

# A host on the way to the receiving host, with a pinned key of its own.
#[receiving_host.jump]
#address = "jump-host.example"
#port = 22
#user = "operator"
#identity_file = "~/.ssh/id_ed25519"
#host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"

# What is measured; the pair of models that comes with pp4 if you leave the first three out.
#[model]
# Directories of checkpoints on the receiving host, and a file of JSON lines there, each the token
# ids of one prompt; all three or none.
#drafter = "/srv/models/drafter"
#target = "/srv/models/target"
#prompts = "/srv/models/prompts.jsonl"
# Positions of a block: 4 or 5.
#depth = 5
# From 1 to 32 rows.
#batch_sizes = [1, 8, 32]
# From 0 to 2; 0 is greedy.
#temperatures = [0, 0.7, 1.0]

# A further host that the receiving host reaches, such as one with an engine.  identity_file is a
# path on the receiving host.
#[[hop]]
#name = "engine"
#address = "engine-host.example"
#port = 22
#user = "operator"
#identity_file = "/home/operator/.ssh/id_ed25519"
#host_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIC"
#python = "python3"
#state_dir = "/srv/pp4-state"
#host_dir = "/var/lib/pp4"

# Commands that make the GPUs free, once they are locked.  No shell reads them.
#[[quiesce]]
#argv = ["systemctl", "--user", "stop", "drafter"]
# Seconds: 1 to 900.
#limit = 60

# Commands on every way out; needed as soon as there is one to quiesce.
#[[restore]]
#argv = ["systemctl", "--user", "start", "drafter"]
#limit = 60

# Receipts that open the HOLD, each with the sha256 of its file.  A relative path begins in the
# directory of this file.  Two receipts of one role make a list of tables.
#[[evidence.identity_reference]]
#path = "receipts/solo.json"
#sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
#[[evidence.identity_reference]]
#path = "receipts/whole-worker.json"
#sha256 = "1111111111111111111111111111111111111111111111111111111111111111"
#[evidence.budget]
#path = "receipts/budget.json"
#sha256 = "2222222222222222222222222222222222222222222222222222222222222222"
#[evidence.first_half]
#path = "receipts/a1b1.json"
#sha256 = "3333333333333333333333333333333333333333333333333333333333333333"
#[evidence.qualification]
#path = "receipts/pair.json"
#sha256 = "4444444444444444444444444444444444444444444444444444444444444444"
"""
