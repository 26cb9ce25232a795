"""Mapped libraries: which ones, what is in them, and what happens when one cannot be read."""

import hashlib
from pathlib import Path

import pytest

from pp4.errors import Code, RefusedError
from pp4.worker.libraries import fingerprints, mapped, mapping_digest


@pytest.fixture
def libraries(tmp_path):
    """A directory with some libraries and the list of mapped files that names them."""
    files = {"libtorch_cpu.so": b"torch" * 9, "libc10.so.2": b"c10", "a libtriton.so": b"triton!"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return files, write_maps(tmp_path, *files, "libm.so.6", "notes-on-torch.txt")


def write_maps(directory, *names):
    maps = directory / "maps"
    lines = ["7f00-7f01 rw-p 00000000 00:00 0 ", "7f02-7f03 r--p 00000000 00:00 0      [heap]"]
    for name in names:
        for flags in ("r--p", "r-xp"):
            lines.append(f"7f04-7f05 {flags} 00001000 fd:00 4711        {directory / name}")
    maps.write_text("\n".join(lines) + "\n")
    return maps


def sha(data):
    return hashlib.sha256(data).hexdigest()


def test_only_libraries_that_matter_count_each_once_in_order(libraries, tmp_path):
    files, maps = libraries
    assert mapped(maps) == tuple(tmp_path / name for name in sorted(files))


def test_fingerprints_are_the_bytes(libraries):
    files, maps = libraries
    found = {one.name: one.sha256 for one in fingerprints(maps=maps)}
    assert found == {name: sha(data) for name, data in files.items()}


def test_a_flip_changes_the_smallest_library_in_its_last_bit_and_no_file(libraries, tmp_path):
    files, maps = libraries
    found = {one.name: one.sha256 for one in fingerprints(flip=True, maps=maps)}
    expected = {name: sha(data) for name, data in files.items()}
    expected["libc10.so.2"] = sha(b"c11")
    assert found == expected
    assert (tmp_path / "libc10.so.2").read_bytes() == b"c10"


def test_one_changed_byte_changes_one_fingerprint(libraries, tmp_path):
    _, maps = libraries
    before = fingerprints(maps=maps)
    (tmp_path / "libtorch_cpu.so").write_bytes(b"torch" * 8 + b"torcH")
    after = fingerprints(maps=maps)
    assert [one.name for one, two in zip(before, after, strict=True) if one != two] == [
        "libtorch_cpu.so"
    ]


@pytest.mark.parametrize("name", ["libtorch_cpu.so", "a libtriton.so"])
@pytest.mark.parametrize("look", [fingerprints, mapping_digest])
@pytest.mark.parametrize("flip", [True, False])
def test_a_library_that_is_gone_refuses_by_name(libraries, tmp_path, name, look, flip):
    (tmp_path / name).unlink()
    with pytest.raises(RefusedError) as caught:
        look(maps=libraries[1], **({"flip": flip} if look is fingerprints else {}))
    assert caught.value.refusal.code is Code.UNREADABLE
    assert caught.value.refusal.where == str(tmp_path / name)


@pytest.mark.parametrize("flip", [True, False])
def test_a_library_that_cannot_be_read_refuses_by_name(libraries, tmp_path, flip):
    # even an administrator cannot read a directory as a file
    (tmp_path / "libc10.so.2").unlink()
    (tmp_path / "libc10.so.2").mkdir()
    with pytest.raises(RefusedError) as caught:
        fingerprints(flip=flip, maps=libraries[1])
    assert caught.value.refusal.code is Code.UNREADABLE
    assert caught.value.refusal.where == str(tmp_path / "libc10.so.2")


def test_a_library_that_was_replaced_while_mapped_refuses(tmp_path):
    (tmp_path / "libtorch.so").write_bytes(b"new")
    maps = write_maps(tmp_path, "libtorch.so (deleted)")
    with pytest.raises(RefusedError) as caught:
        fingerprints(maps=maps)
    assert "(deleted)" in caught.value.refusal.where


def test_a_system_that_does_not_tell_refuses(tmp_path):
    with pytest.raises(RefusedError) as caught:
        mapped(tmp_path / "none")
    assert caught.value.refusal.code is Code.UNREADABLE


def test_without_any_library_there_is_no_fingerprint(tmp_path):
    maps = write_maps(tmp_path)
    assert fingerprints(maps=maps) == fingerprints(flip=True, maps=maps) == ()


def test_the_mapping_digest_changes_with_the_files(libraries, tmp_path):
    _, maps = libraries
    before = mapping_digest(maps)
    assert before == mapping_digest(maps)
    (tmp_path / "libc10.so.2").write_bytes(b"c10 and more")
    assert mapping_digest(maps) != before
    assert mapping_digest(write_maps(tmp_path, "libc10.so.2")) != mapping_digest(
        write_maps(tmp_path, "libtorch_cpu.so")
    )


def test_this_process_has_torch_mapped():
    import torch

    paths = mapped()
    assert any(path.name.startswith("libtorch") for path in paths)
    assert all(path.is_file() for path in paths)
    assert Path(torch.__file__).parent in {parent for path in paths for parent in path.parents}
