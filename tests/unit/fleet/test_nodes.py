"""Nodes as a person names them, on the command line or in a file."""

import pytest

from pp4.errors import BadInputError, Code, RefusedError
from pp4.fleet.nodes import NamedNode, parse_nodes, read_nodes
from tests.unit.fleet.fleets import uuids


def parsed(*texts):
    return parse_nodes([("here", text) for text in texts])


def test_a_number_or_all_uuids():
    first, second = uuids(2)
    assert parsed("n-1.rack_2=8", f"b={first},{second}") == (
        NamedNode("n-1.rack_2", 8),
        NamedNode("b", 2, (first, second)),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n",
        "n=",
        "=8",
        "n=0",
        "n=1",
        "n=65",
        "n=100",
        "n=08",
        "n=-8",
        "n=8 ",
        "n=\u0668",
        "n\u0661=8",
        "n[1-4]=8",
        "n1,n2=8",
        "-n=8",
        ".n=8",
        "../n=8",
        "n/m=8",
        "n;reboot=8",
        "$(reboot)=8",
        "n 1=8",
        "n\n=8",
        "x" * 65 + "=8",
        f"n={uuids(1)[0]}",
        f"n={uuids(1)[0]},",
        f"n={uuids(1)[0]},{uuids(1)[0][:-1]}",
        f"n={uuids(1)[0]},{uuids(1)[0].upper()}",
        f"n={uuids(1)[0]},0",
    ],
)
def test_whatever_is_spelled_otherwise_is_refused(text):
    with pytest.raises(BadInputError) as caught:
        parsed(text)
    assert caught.value.refusal.where == "here"
    assert "\n" not in caught.value.refusal.found


def test_a_name_twice_a_gpu_twice_and_nothing_at_all():
    first, second, third = uuids(3)
    for texts in (
        ["n=8", "n=4"],
        [f"n={first},{first}"],
        [f"n={first},{second}", f"m={third},{first}"],
        [],
    ):
        with pytest.raises(BadInputError):
            parsed(*texts)


def test_a_file_has_one_on_each_line_and_comments(tmp_path):
    file = tmp_path / "nodes"
    file.write_text("# rack 1\nn1=8\n\n  n2=4  # older\n")
    assert [text for _, text in read_nodes(file)] == ["n1=8", "n2=4"]
    assert [where for where, _ in read_nodes(file)] == [f"{file}, line 2", f"{file}, line 4"]
    file.write_bytes(b"n1=8\n\xff")
    with pytest.raises(BadInputError):
        list(read_nodes(file))
    with pytest.raises(RefusedError) as caught:
        list(read_nodes(tmp_path / "gone"))
    assert caught.value.refusal.code is Code.UNREADABLE
