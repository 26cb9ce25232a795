"""Digests depend on shapes and on the compiler, and on nothing that varies at run time."""

import json
import shutil

import pytest

from pp4.errors import Code, RefusedError
from pp4.kernels.compile import compile_offline
from pp4.kernels.geometry import Geometry
from pp4.kernels.ptx import faults
from pp4.kernels.sampled_fused import ALIGNED
from tests.kernels.compiling import ROOT, TINY, python, record

DESCRIBE = """
import json
from pp4.kernels.sampled_fused import POINTERS, SCALARS, _kernel
print(json.dumps({
    "pointers": POINTERS,
    "scalars": SCALARS,
    "parameters": [
        [p.name, p.is_constexpr, p.do_not_specialize, p.do_not_specialize_on_alignment]
        for p in _kernel.params
    ],
}))
"""


@pytest.fixture
def tiny(compiled):
    return compiled.tiny_pair


def digests(answer):
    return {name: answer[name] for name in ("target", "ptx_sha256", "cubin_sha256")}


def test_the_same_source_gives_the_same_digests_in_another_folder(tiny, tmp_path):
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "pp4", tmp_path / "elsewhere" / "pp4", ignore=ignore)
    again = record(TINY, tmp_path / "cache", cwd=tmp_path / "elsewhere")
    assert digests(again) == digests(tiny)


def test_with_line_information_the_folder_would_show(tiny, tmp_path):
    answer = record([*TINY, "--ptx"], tmp_path, TRITON_DISABLE_LINE_INFO="0")
    assert "sampled_fused.py" in answer["ptx"]
    assert answer["ptx_sha256"] != tiny["ptx_sha256"]


def test_no_run_time_value_is_compiled_in(tmp_path):
    done = python(["-c", DESCRIBE], tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    names = [name for name, *_ in found["parameters"]]
    shapes = {
        "SHARDS", "TILES", "PADDED_LISTS", "TILE", "PANEL", "GROUP", "BITS", "WORDS", "HAS_MAP",
        "INTERPRETED",
    }  # fmt: skip
    assert names[: -len(shapes)] == found["pointers"] + found["scalars"]
    assert set(names[-len(shapes) :]) == shapes
    for name, constant, by_value, by_alignment in found["parameters"]:
        assert constant == (name in shapes), name
        if name in found["scalars"]:
            assert by_value, name
        elif not constant:
            # the others always start on 16 bytes, and loads of 16 bytes follow from that
            assert by_alignment == (name not in ALIGNED), name
    assert {"rank", "own_workspace", "peer_workspace", "index", "rows"} <= set(found["scalars"])


def test_pair_and_solo_and_other_shapes_are_other_binaries(compiled):
    three = (compiled.pair, compiled.solo, compiled.tiny_pair)
    for digest in ("ptx_sha256", "cubin_sha256"):
        assert len({one[digest] for one in three}) == 3


def test_a_mutant_is_compiled_on_request(tiny, tmp_path):
    arguments = [*TINY, "--ptx", "--control", "missing_barrier", "--directory"]
    answer = record([*arguments, str(tmp_path / "controls")], tmp_path / "cache")
    assert answer["ptx_sha256"] != tiny["ptx_sha256"]
    assert faults(answer["ptx"], paired=True)
    assert list((tmp_path / "controls").iterdir())


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--vocab", "1"], "BAD_INPUT: vocab"),
        (["--control", "missing_barrier"], "--directory"),
        (["--control", "no_such", "--directory", "x"], "BAD_INPUT: control"),
    ],
)
def test_what_cannot_be_compiled_is_one_line_and_exit_3(tmp_path, arguments, match):
    done = python(["-m", "pp4.kernels.compile", *arguments], tmp_path, PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout) == (3, "")
    assert match in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_interpreting_process_compiles_nothing():
    with pytest.raises(RefusedError) as caught:
        compile_offline(Geometry(vocab=64, split=32, tile=32), shards=1)
    assert caught.value.refusal.code is Code.BAD_INPUT
    assert "TRITON_INTERPRET" in str(caught.value)


@pytest.mark.slow
def test_the_production_shape_is_good_too(tmp_path):
    text = record(["--ptx"], tmp_path)["ptx"]
    assert faults(text, paired=True) == ()
    # Weights and logits come by 16 bytes, which a hint in the kernel, and later a mask that no
    # 16 bytes fit, once kept from being so.  Of 2 bytes is what is looked up column by column.
    assert text.count("ld.global.v4.b32") > 30
    assert text.count("ld.global.b16") < 10
