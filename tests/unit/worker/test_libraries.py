"""Mapped libraries: which ones, what is in them, and what happens when one cannot be read."""

import hashlib
import os
from pathlib import Path

import pytest

from pp4.errors import Code, RefusedError
from pp4.worker import libraries as module
from pp4.worker.libraries import build_id, fingerprints, mapped, mapping_digest


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


def test_what_lies_in_a_directory_can_be_left_out(tmp_path):
    (tmp_path / "cache" / "deep").mkdir(parents=True)
    (tmp_path / "cache-of-another").mkdir()
    names = ("libtorch.so", "cache/cuda_utils.so", "cache/deep/cuda_utils.so")
    for name in (*names, "cache-of-another/cuda_utils.so"):
        (tmp_path / name).write_bytes(name.encode())
    maps = write_maps(tmp_path, *names, "cache-of-another/cuda_utils.so")
    assert len(mapped(maps)) == len(fingerprints(maps=maps)) == 4
    kept = [tmp_path / "cache-of-another/cuda_utils.so", tmp_path / "libtorch.so"]
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    for outside in (tmp_path / "cache", tmp_path / "link", tmp_path / "cache" / ".." / "cache"):
        assert list(mapped(maps, outside)) == kept
        found = fingerprints(maps=maps, outside=outside)
        # a name that is no longer double is short
        assert [one.name for one in found] == ["cuda_utils.so", "libtorch.so"]
    assert len(mapped(maps, tmp_path / "nowhere")) == 4
    assert fingerprints(maps=maps, outside=tmp_path) == ()


def test_a_flip_is_among_what_counts(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "libcuda_tiny.so").write_bytes(b"x")
    (tmp_path / "libtorch.so").write_bytes(b"torch")
    maps = write_maps(tmp_path, "cache/libcuda_tiny.so", "libtorch.so")
    (found,) = fingerprints(flip=True, maps=maps, outside=tmp_path / "cache")
    assert (found.name, found.sha256) == ("libtorch.so", sha(b"torci"))


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


@pytest.mark.parametrize(
    "name",
    [
        "libcuda.so.580.159.04",
        "libnvidia-ptxjitcompiler.so.580.159.04",
        "libcudart.so.13",
        "libnvrtc.so.13",
        "libnvrtc-builtins.so.13.0",
        "libnvJitLink.so.13",
        "libcublasLt.so.13",
        "libcudnn_graph.so.9",
        "libcusparseLt.so.0",
        "libnccl.so.2",
        "libnvshmem_host.so.3",
        "libcupti.so.13",
        "cuda_utils.cpython-311-x86_64-linux-gnu.so",
        "__triton_launcher.so",
    ],
)
def test_what_torch_and_triton_map_on_a_gpu_counts(tmp_path, name):
    maps = write_maps(tmp_path, name, "libcurl.so.4", "libcups.so.2", "libnvme.so.1")
    assert [path.name for path in mapped(maps)] == [name]


# -- names ------------------------------------------------------------------------------------


def test_libraries_of_one_name_are_told_apart_by_the_shortest_end_of_their_paths(tmp_path):
    paths = {
        "a/lib/libcudart.so": b"1",
        "b/lib/libcudart.so": b"2",
        "b/lib64/libcudart.so": b"1",
        "b/lib/libnccl.so": b"3",
    }
    for path, data in paths.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    found = fingerprints(maps=write_maps(tmp_path, *paths))
    expected = {path: sha(data) for path, data in paths.items() if "cudart" in path}
    assert {one.name: one.sha256 for one in found} == {**expected, "libnccl.so": sha(b"3")}
    assert len(found) == 4


def test_a_library_at_the_root_and_one_below_are_told_apart(tmp_path):
    paths = (Path("/libcuda.so"), Path("/x/libcuda.so"), Path("/x/y/libnccl.so"))
    assert list(module._names(paths)) == ["libcuda.so", "x/libcuda.so", "libnccl.so"]


# -- what is read once ------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    """The paths of which bytes were hashed, in order."""
    seen = []
    digest = module._digest

    def counted(file, path, flip):
        seen.append(path.name)
        return digest(file, path, flip)

    monkeypatch.setattr(module, "_digest", counted)
    return seen


@pytest.fixture
def old(monkeypatch):
    """Files of this moment count as settled."""
    monkeypatch.setattr(module, "_SETTLED_NS", -(10**15))


def test_a_settled_library_is_read_once(libraries, reads, old):
    first = fingerprints(maps=libraries[1])
    assert len(reads) == 3
    assert fingerprints(maps=libraries[1]) == first
    assert len(reads) == 3


def test_fresh_reads_everything_again(libraries, reads, old):
    first = fingerprints(maps=libraries[1])
    assert fingerprints(fresh=True, maps=libraries[1]) == first
    assert len(reads) == 6


def test_a_flip_reads_its_library_and_is_not_remembered(libraries, reads, old):
    first = fingerprints(maps=libraries[1])
    flipped = fingerprints(flip=True, maps=libraries[1])
    assert reads[3:] == ["libc10.so.2"]
    assert [one.name for one, two in zip(first, flipped, strict=True) if one != two] == reads[3:]
    assert fingerprints(maps=libraries[1]) == first


def test_a_flip_before_anything_is_known_leaves_nothing_behind(libraries, old):
    flipped = fingerprints(flip=True, maps=libraries[1])
    found = {one.name: one.sha256 for one in fingerprints(maps=libraries[1])}
    assert found["libc10.so.2"] == sha(b"c10") != {o.name: o.sha256 for o in flipped}["libc10.so.2"]


def test_a_library_that_was_just_written_is_not_remembered(libraries, reads):
    fingerprints(maps=libraries[1])
    fingerprints(maps=libraries[1])
    assert len(reads) == 6


def test_other_bytes_with_the_old_time_of_change_are_seen(libraries, tmp_path, old):
    path = tmp_path / "libc10.so.2"
    before = path.stat()
    first = fingerprints(maps=libraries[1])
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.write_bytes(b"C10")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    second = fingerprints(maps=libraries[1])
    assert [two.name for one, two in zip(first, second, strict=True) if one != two] == [path.name]


def test_a_library_that_changes_while_it_is_read_refuses(libraries, tmp_path, monkeypatch):
    digest = module._digest

    def meanwhile(file, path, flip):
        path.write_bytes(path.read_bytes() + b"more")
        return digest(file, path, flip)

    monkeypatch.setattr(module, "_digest", meanwhile)
    with pytest.raises(RefusedError) as caught:
        fingerprints(maps=libraries[1])
    assert caught.value.refusal.code is Code.UNREADABLE
    assert caught.value.refusal.found == "it changed while it was read"


def test_an_empty_library_has_no_byte_to_flip(tmp_path):
    (tmp_path / "libtorch.so").write_bytes(b"")
    maps = write_maps(tmp_path, "libtorch.so")
    assert fingerprints(maps=maps)[0].sha256 == sha(b"")
    with pytest.raises(RefusedError) as caught:
        fingerprints(flip=True, maps=maps)
    assert caught.value.refusal.found == "an empty file"


def test_a_library_that_is_cut_off_refuses(tmp_path):
    (tmp_path / "libtorch.so").write_bytes(b"\x7fELF\x02\x01 and no more")
    with pytest.raises(RefusedError) as caught:
        fingerprints(maps=write_maps(tmp_path, "libtorch.so"))
    assert caught.value.refusal.code is Code.UNREADABLE


def test_what_this_process_maps_has_the_ids_that_its_files_have():
    import torch  # noqa: F401

    paths = mapped()
    found = fingerprints()
    assert [one.build_id for one in found] == [build_id(path) for path in paths]
    assert any(one.build_id for one in found)
    assert len({one.name for one in found}) == len(paths)


def test_this_process_has_torch_mapped():
    import torch

    paths = mapped()
    assert any(path.name.startswith("libtorch") for path in paths)
    assert all(path.is_file() for path in paths)
    assert Path(torch.__file__).parent in {parent for path in paths for parent in path.parents}
