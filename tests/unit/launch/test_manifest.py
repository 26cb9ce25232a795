"""A manifest says what it means, or is refused before any tree is looked at."""

import pytest

from pp4.errors import Code, RefusedError
from pp4.launch.manifest import LIMIT, load_manifest
from tests.unit.launch.subjects import MANIFEST, ZERO

TEXT = MANIFEST.read_text()
EDIT = f"[[edit]]\nname = 'a'\npath = 'b'\nsha256 = '{ZERO}'\nold = 'c'\nnew = 'd'\n"


def refused(tmp_path, text):
    file = tmp_path / "m.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RefusedError) as raised:
        load_manifest(file)
    refusal = raised.value.refusal
    assert refusal.code is Code.BAD_MANIFEST
    assert refusal.where.startswith(str(file))
    return refusal


def swapped(old, new, count=1):
    assert old in TEXT
    return TEXT.replace(old, new, count)


def test_the_manifest_of_the_reference_runner_is_one():
    opened = load_manifest(MANIFEST)
    assert [one.name for one in opened.manifest.guard] == ["mtp-none-load", "mtp-none-step"]
    assert opened.source.resolve() == MANIFEST.parents[1] / "runner"


BAD = {
    "no guards": swapped("[[guard]]", "[[input]]", 9),
    "one guard": TEXT[: TEXT.rindex("[[guard]]")],
    "no package": TEXT.replace("[[package]]", "[[other]]"),
    "an unknown key": swapped('name = "verifier-abi"', 'name = "verifier-abi"\nonce = true'),
    "an unknown table": TEXT + "\n[more]\n",
    "a number": swapped('name = "verifier-abi"', "name = 1"),
    "a fraction": swapped('name = "verifier-abi"', "name = 1.5"),
    "a date": swapped('path = "start.sh"', "path = 2026-11-30"),
    "a huge number": swapped('name = "verifier-abi"', f"name = 0x{'f' * 9000}"),
    "a short sha256": swapped('sha256 = "', 'sha256 = "0', 1),
    "upper case": swapped('name = "verifier-abi"', 'name = "Verifier"'),
    "a path that leaves": swapped('path = "start.sh"', 'path = "../start.sh"'),
    "an absolute path": swapped('path = "start.sh"', 'path = "/start.sh"'),
    "a dot": swapped('path = "start.sh"', 'path = "./start.sh"'),
    "no passage": swapped("old = '''\nABI = None\n'''", "old = ''"),
    "a passage that stays": swapped('\nABI = "pp4-draft-v1"\n', "\nABI = None\n"),
    "a function that is no name": swapped('"Runner.step"', '"Runner.<locals>"'),
    "two guards of a name": swapped("mtp-none-step", "mtp-none-load"),
    "two guards of a place": swapped("Runner.step", "Runner.load"),
    "two edits of a name": TEXT + EDIT + EDIT,
    "two hashes of a file": TEXT + EDIT.replace("'b'", "'start.sh'"),
    "an edit in a package": TEXT + EDIT.replace("'b'", "'dspark_runner/remote_dspark/x'"),
    "another directory": swapped('"dspark_runner/remote_dspark"', '"dspark_runner/dspark"'),
    "no TOML": "[source\n",
    "no text": b"\xff",
    "nested": "a = " + "[" * 9000,
    "empty": "",
}


@pytest.mark.parametrize("name", BAD)
def test_another_one_is_refused(tmp_path, name):
    assert BAD[name] != TEXT
    refused(tmp_path, BAD[name])


def test_a_package_within_a_package_is_refused(tmp_path):
    more = TEXT[TEXT.index("[[package]]") : TEXT.index("# The verifier takes")]
    more = more.replace('remote_dspark"\nsha', 'remote_dspark/b"\nsha')
    more = more.replace('"dspark_runner.remote_dspark"', '"b"')
    assert refused(tmp_path, TEXT + more).expected.startswith("nothing that is changed within")


def test_a_file_that_is_no_manifest_at_all(tmp_path):
    refused(tmp_path, "#" * (LIMIT + 1))
    with pytest.raises(RefusedError) as raised:
        load_manifest(tmp_path)
    assert raised.value.refusal.code is Code.BAD_MANIFEST
