"""What a link of shared memory refuses, and what its bounds do."""

import pytest

from pp4.errors import BadInputError, Code, RefusedError
from pp4.kernels.link import Bounds, SharedMemoryLink, workspace_words

SHORT = Bounds(first_polls=3, next_polls=3)


def test_a_link_refuses_what_it_cannot_map(tmp_path):
    own, peer = tmp_path / "own", tmp_path / "peer"
    link = SharedMemoryLink(own, peer, rank=0, rows=1, start=1, bounds=SHORT)
    with pytest.raises(RefusedError) as unconnected:
        _ = link.peer_address
    assert unconnected.value.refusal.code is Code.UNPRIMED
    with pytest.raises(RefusedError) as missing:
        link.connect()
    assert missing.value.refusal.code is Code.UNREADABLE
    peer.write_bytes(bytes(8))
    with pytest.raises(BadInputError, match=f"{workspace_words(1) * 8} bytes, found 8"):
        link.connect()
    with pytest.raises(RefusedError) as taken:
        SharedMemoryLink(own, peer, rank=0, rows=1, start=1, bounds=SHORT)
    assert taken.value.refusal.code is Code.UNWRITABLE
    link.close()
    assert not own.exists()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rank": 2}, "0 or 1"),
        ({"rows": 0}, "at least one row"),
        ({"start": 0}, "start epoch"),
        ({"start": 1 << 20}, "start epoch"),
    ],
)
def test_a_link_refuses_numbers_out_of_range(tmp_path, change, match):
    arguments = {"rank": 0, "rows": 1, "start": 1, "bounds": SHORT, **change}
    with pytest.raises(BadInputError, match=match):
        SharedMemoryLink(tmp_path / "own", tmp_path / "peer", **arguments)
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize(
    "change",
    [{"first_ns": 0}, {"next_ns": -1}, {"first_polls": 1 << 62}, {"next_polls": 0}],
)
def test_bounds_refuse_what_does_not_end(change):
    with pytest.raises(BadInputError, match=next(iter(change))):
        Bounds(**change)


@pytest.mark.parametrize("limit", [0, 1 << 62])
def test_an_epoch_limit_out_of_range_refuses(limit):
    with pytest.raises(BadInputError, match="epoch_limit"):
        Bounds(epoch_limit=limit)
