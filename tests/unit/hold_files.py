"""HOLD files for tests: a whole one, a small one, and both with one thing changed."""

import base64
import copy
import json

import pytest

from pp4.config.hold_file import load_hold_file
from pp4.config.keys import KEYS
from pp4.errors import Code, RefusedError

HOME = {"HOME": "/home/u"}


def field(data):
    return len(data).to_bytes(4, "big") + data


def line(kind, *fields):
    blob = b"".join(field(one) for one in (kind.encode(), *fields))
    return f"{kind} {base64.b64encode(blob).decode()}"


ED25519 = line("ssh-ed25519", bytes(range(32)))
OTHER = line("ssh-ed25519", bytes(32))
P256 = line("ecdsa-sha2-nistp256", b"nistp256", b"\x04" + bytes(64))
RSA = line("ssh-rsa", b"\x01\x00\x01", bytes(257))
GPUS = ["GPU-01234567-89ab-cdef-0123-456789abcdef", "GPU-fedcba98-7654-3210-fedc-ba9876543210"]

FULL = {
    "hold": {"name": "first-pair", "bound_minutes": 45, "ttl": 12},
    "receiving_host": {
        "transport": "ssh",
        "address": "host.example",
        "port": 2222,
        "user": "operator",
        "identity_file": "~/.ssh/key",
        "host_key": ED25519 + " of the host",
        "agent": True,
        "jump": {
            "address": "10.0.0.1",
            "port": 22,
            "user": "guest",
            "identity_file": "/keys/jump",
            "host_key": OTHER,
        },
        "python": "/opt/py/bin/python",
        "state_dir": "/srv/state",
        "host_dir": "/srv/pp4",
        "gpus": GPUS,
    },
    "model": {
        "drafter": "/models/d",
        "target": "/models/t",
        "prompts": "/models/p.jsonl",
        "depth": 4,
        "batch_sizes": [8, 1],
        "temperatures": [0, "REAL 0.70", "REAL 1.0"],
    },
    "hop": [
        {
            "name": "engine",
            "address": "fe80::1%eth0",
            "port": 23,
            "user": "e",
            "identity_file": "/home/e/key",
            "host_key": P256,
            "python": "python3.12",
            "state_dir": "/e/state",
            "host_dir": "/e/host",
        }
    ],
    "quiesce": [{"argv": ["systemctl", "stop", "a b; c"], "limit": 30}],
    "restore": [{"argv": ["/bin/systemctl", "start", "$(x)"], "limit": 40}],
    "evidence": {
        "budget": {"path": "receipts/budget.json", "sha256": "a" * 64},
        "first_half": {"path": "/archive/a1b1.json", "sha256": "b" * 64},
        "identity_reference": [
            {"path": "~/solo.json", "sha256": "c" * 64},
            {"path": "worker.json", "sha256": "d" * 64},
        ],
        "qualification": {"path": "../pair.json", "sha256": "e" * 64},
    },
}
SMALL = {
    "hold": {"name": "x"},
    "receiving_host": {
        key: FULL["receiving_host"][key]
        for key in ("transport", "address", "user", "identity_file", "host_key", "gpus")
    },
}
LOCAL = {"hold": {"name": "x"}, "receiving_host": {"transport": "local"}}


def value(tree):
    """TOML of a value; a text that begins with REAL stands for the bare number behind it."""
    if isinstance(tree, dict):
        rows = (f"{json.dumps(key)} = {value(inner)}" for key, inner in tree.items())
        return f"{{ {', '.join(rows)} }}"
    if isinstance(tree, list):
        return f"[{', '.join(value(inner) for inner in tree)}]"
    if isinstance(tree, str) and tree.startswith("REAL "):
        return tree.removeprefix("REAL ")
    return json.dumps(tree, ensure_ascii=False)


def text_of(tree):
    return "".join(f"{json.dumps(key)} = {value(inner)}\n" for key, inner in tree.items())


def load(place, tree):
    raw = tree if isinstance(tree, bytes) else text_of(tree).encode()
    place.write_bytes(raw)
    return load_hold_file(place, HOME)


def refused(place, tree):
    with pytest.raises(RefusedError) as caught:
        load(place, tree)
    refusal = caught.value.refusal
    assert refusal.code is Code.BAD_HOLD_FILE
    assert refusal.where.startswith(str(place))
    assert refusal.expected
    assert refusal.found
    return refusal


def changed(tree, path, new):
    """A copy of the tree with another value at a dotted path, or without it (DROP)."""
    tree = copy.deepcopy(tree)
    *above, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    inner = tree
    for key in above:
        inner = inner[key]
    if new is DROP:
        del inner[last]
    else:
        inner[last] = new
    return tree


DROP = object()


KNOWN = [(kind, key) for kind, keys in KEYS.items() for key in keys]


def at(kind, key):
    """Where a table of a kind stands in FULL, and the key in it."""
    path = kind.replace("ROLE", "budget")
    path = f"{path}.0" if isinstance(FULL.get(path), list) else path
    return f"{path}.{key}".lstrip(".")
