"""Prompts: the form of the file, which of them a round has, and with which keys."""

import hashlib

import pytest

from pp4.engine.measured.prompts import keys_of, prompts_of, read_prompts
from pp4.errors import Code, RefusedError


def test_each_line_is_a_prompt(tmp_path):
    raw = b"[1,2,3]\n[0]\n [7, 8] \n"
    (tmp_path / "p").write_bytes(raw)
    found = read_prompts(tmp_path / "p")
    assert found.tokens == ((1, 2, 3), (0,), (7, 8))
    assert found.sha256 == hashlib.sha256(raw).hexdigest()
    # the last line's end is not needed
    (tmp_path / "q").write_bytes(raw[:-1])
    assert read_prompts(tmp_path / "q").tokens == found.tokens


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"{}", b"[1,", b"[1.0]", b"[true]", b'["1"]', b"[[1]]", b"7", b"\xff", b"[NaN]"],
)
def test_a_line_that_is_none_is_named(tmp_path, line):
    (tmp_path / "p").write_bytes(b"[1]\n" + line + b"\n[2]\n")
    with pytest.raises(RefusedError) as caught:
        read_prompts(tmp_path / "p")
    assert caught.value.refusal.code is Code.NOT_JSON
    assert caught.value.refusal.where.endswith("/p, line 2")


def test_a_file_without_any_is_refused(tmp_path):
    (tmp_path / "p").write_bytes(b"")
    with pytest.raises(RefusedError) as caught:
        read_prompts(tmp_path / "p")
    assert caught.value.refusal.code is Code.NOT_JSON
    with pytest.raises(RefusedError) as caught:
        read_prompts(tmp_path / "none")
    assert caught.value.refusal.code is Code.UNREADABLE


def test_prompts_follow_each_other_from_round_to_round():
    assert prompts_of(0, 3, 8) == [0, 1, 2]
    assert prompts_of(1, 3, 8) == [3, 4, 5]
    assert prompts_of(2, 3, 8) == [6, 7, 0]
    # no round has one of them twice
    assert sorted(prompts_of(5, 8, 8)) == list(range(8))


def test_a_key_follows_from_its_name():
    # of every platform and version: sha256 of the name, the first eight bytes, little endian
    name = b"pp4 measured 1 7 headline 2 3 1"
    expected = int.from_bytes(hashlib.sha256(name).digest()[:8], "little")
    assert keys_of(7, "headline", 2, 3)[1] == expected


def test_no_two_requests_have_a_key():
    keys = [
        key
        for seed in (0, 1)
        for phase in ("warm-up", "greedy", "headline", "profiled")
        for index in range(12)
        for batch in (1, 8, 32)
        for key in keys_of(seed, phase, index, batch)
    ]
    assert len(keys) == len(set(keys)) == 2 * 4 * 12 * 41
    assert all(0 <= key < 1 << 64 for key in keys)
    # all of the 64 bits are used
    assert max(keys) > 1 << 63 > min(keys)
