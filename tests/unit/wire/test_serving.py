"""Settings of a worker: what they may be, and one refusal for what they may not."""

import json

import pytest

from pp4.errors import Code, RefusedError
from pp4.wire.serving import Serve, read_settings, settings_of

ONE, OTHER = (f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in (1, 2))
LEAST = {
    "checkpoint": "/c",
    "device": "reference",
    "socket": "/run/s",
    "state": "/var/a",
    "compiled": "/var/b",
}
PAIR = {"device": "gpu", "gpus": [ONE, OTHER]}
RECEIPT = {"kind": "qualification", "path": "/q.json", "sha256": "a" * 64}


def refusal(members):
    with pytest.raises(RefusedError) as caught:
        read_settings(json.dumps({**LEAST, **members}).encode())
    assert caught.value.refusal.code is Code.BAD_SETTING
    return caught.value.refusal


def test_what_is_left_out_has_a_default():
    read = settings_of(LEAST)
    assert read.batches == (1, 2, 4, 8, 16, 32)
    assert read.depths == (4, 5)
    assert (read.slots, read.context, read.cache_mib) == (64, 4096, 256)
    assert (read.gpus, read.solo, read.tcp, read.metrics_port) == ((), False, None, None)
    assert (read.permission.kind, read.exit_when_failed, read.log) == ("none", False, "json")
    assert (read.waits.first_ns, read.waits.next_ns) == (2_000_000_000, 20_000_000)


@pytest.mark.parametrize(
    "members",
    [
        PAIR,
        {**PAIR, "permission": RECEIPT},
        {**PAIR, "permission": {"kind": "grant"}},
        {"device": "gpu", "gpus": [ONE], "solo": True, "permission": {"kind": "grant"}},
        {"device": "interpreter", "solo": True},
        {"tcp": {"port": 0}, "metrics_port": 9000},
        {"tcp": {"host": "::1", "port": 65535}},
        {"batches": [8], "depths": [5], "waits": {"epochs": 7}},
    ],
)
def test_what_is_sound_comes_back_as_it_was_written(members):
    read = settings_of({**LEAST, **members})
    assert read_settings(read.model_dump_json().encode()) == read
    for name, value in members.items():
        told = json.loads(read.model_dump_json())[name]
        assert told == value if not isinstance(value, dict) else value.items() <= told.items()


@pytest.mark.parametrize(
    ("members", "place", "word"),
    [
        ({"batches": [2, 1]}, "batches", "rising"),
        ({"batches": [1, 1]}, "batches", "rising"),
        ({"batches": [0, 1]}, "batches", "from 1 to 32"),
        ({"batches": [1, 33]}, "batches", "from 1 to 32"),
        ({"batches": []}, "batches", "at least one"),
        ({"depths": [5, 4]}, "depths", "4 and 5"),
        ({"depths": [3]}, "depths", "4 and 5"),
        ({"slots": 0}, "slots", "greater than or equal to 1"),
        ({"slots": 1.5}, "slots", "integer"),
        ({"slots": True}, "slots", "integer"),
        ({"context": 0}, "context", "1"),
        ({"cache_mib": -1}, "cache_mib", "0"),
        ({"metrics_port": 65536}, "metrics_port", "65535"),
        ({"device": "cpu"}, "device", "reference"),
        ({"log": "xml"}, "log", "text"),
        ({"checkpoint": "relative"}, "checkpoint", "absolute"),
        ({"state": "/a\nb"}, "state", "absolute"),
        ({"socket": "/" + "x" * 107}, "socket", "107"),
        ({"tcp": {"host": "0.0.0.0", "port": 1}}, "tcp.host", "loopback"),
        ({"tcp": {"host": "localhost", "port": 1}}, "tcp.host", "loopback"),
        ({"tcp": {"host": "10.0.0.1", "port": 1}}, "tcp.host", "loopback"),
        ({"tcp": {"port": -1}}, "tcp.port", "0"),
        ({"device": "gpu"}, "gpus", "2 different GPUs"),
        ({"device": "gpu", "gpus": [ONE]}, "gpus", "2 different GPUs"),
        ({"device": "gpu", "gpus": [ONE, ONE]}, "gpus", "2 different GPUs"),
        ({**PAIR, "solo": True}, "gpus", "1 different GPUs"),
        ({"gpus": [ONE, OTHER]}, "gpus", "0 different GPUs"),
        ({"device": "gpu", "gpus": [ONE.replace("00", "AA"), OTHER]}, "gpus.0", "UUID"),
        ({"permission": {"kind": "trust me"}}, "permission", "qualification"),
        ({"permission": {**RECEIPT, "sha256": "a"}}, "permission", "pattern"),
        ({"permission": RECEIPT}, "permission", "pair of GPUs"),
        (
            {"device": "gpu", "gpus": [ONE], "solo": True, "permission": RECEIPT},
            "permission",
            "pair of GPUs",
        ),
        ({"waits": {"first_ns": 0}}, "waits", "first_ns"),
        ({"limits": {"stop_s": 0}}, "limits.stop_s", "greater than 0"),
        ({"limits": {"block_s": 3601}}, "limits.block_s", "3600"),
        ({"sampled": True}, "sampled", "known setting"),
        ({"slot": 3}, "slot", "perhaps slots"),
    ],
)
def test_one_refusal_names_the_member_and_what_it_has_to_be(members, place, word):
    found = refusal(members)
    assert found.where.startswith(f"worker settings, {place}")
    assert word in found.expected
    assert found.found


@pytest.mark.parametrize("name", LEAST)
def test_what_has_to_be_there_is_missed(name):
    rest = {key: value for key, value in LEAST.items() if key != name}
    with pytest.raises(RefusedError) as caught:
        settings_of(rest)
    assert caught.value.refusal.where == f"worker settings, {name}"
    assert caught.value.refusal.found == "nothing"


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b"\xff", b'{"slots": 1, "slots": 2}', b"[" * 5000]
)
def test_what_is_no_settings_is_refused(raw):
    with pytest.raises(RefusedError) as caught:
        read_settings(raw)
    assert caught.value.refusal.code is Code.BAD_SETTING


def test_no_setting_is_a_switch():
    assert not [name for name in Serve.model_fields if "sampled" in name or "switch" in name]
