"""A file gets its name in the working directory, and none that means something else there."""

import hashlib

import pytest

from pp4.errors import BadInputError
from pp4.hold.placing import place
from pp4.wire.hops import Place, part_of

HOLD, DATA = "0123456789abcdef", b"weights"
SHA256 = hashlib.sha256(DATA).hexdigest()


def placed(work, target):
    (work / part_of(HOLD, SHA256)).write_bytes(DATA)
    part = part_of(HOLD, SHA256)
    place(work, Place(hold=HOLD, fence=1, part=part, target=target, sha256=SHA256, size=len(DATA)))


@pytest.mark.parametrize("target", ["a", "a/b/guard-drill.ended", "xguard-drill.ended"])
def test_a_file_is_there_under_its_name_alone(tmp_path, target):
    placed(tmp_path, target)
    assert (tmp_path / target).read_bytes() == DATA
    assert not (tmp_path / part_of(HOLD, SHA256)).exists()


@pytest.mark.parametrize(
    "target",
    ["", ".", "/a", "../a", "a/../b", "a//b", "a/", "a\n", "guard-drill.ended", "guard-x/a"],
)
def test_no_other_name_is_given(tmp_path, target):
    with pytest.raises(BadInputError):
        placed(tmp_path, target)
    assert [one.name for one in tmp_path.iterdir()] == [part_of(HOLD, SHA256)]
