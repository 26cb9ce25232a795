"""``pp4 drafter inspect``: what it says, that it needs no torch, and its refusals."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from pp4 import cli
from pp4.drafter.checkpoint.load import load
from pp4.drafter.inspection import inspect, main
from pp4.errors import Code, Exit
from tests.unit.drafter import damage
from tests.unit.drafter.checkpoints import (
    FULL_SPECULATORS,
    LENT,
    REDUCED,
    SMALL,
    config_tree,
    random_tensors,
    write,
    write_target,
)

CONFIGS = {"deepspec": SMALL, "speculators": FULL_SPECULATORS, "reduced": REDUCED}


def call(capsys, *arguments):
    code = cli.main(["drafter", "inspect", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("shards", [1, 2])
def test_bytes_and_rows_are_those_that_loading_gives(tmp_path, name, shards):
    path = write(tmp_path, CONFIGS[name], shards=shards)
    found = inspect(path)
    for rank in (0, 1):
        weights = load(path, rank, 2)
        assert found["rank_bytes"][rank] == weights.bytes
        assert found["bounds"][rank] == list(weights.bounds)
        for tensor in found["tensors"]:
            rows = tensor["ranks"][rank]["rows"]
            if tensor["name"] in weights.tensors:
                assert rows[1] - rows[0] == len(weights.tensors[tensor["name"]])
    tensors = random_tensors(CONFIGS[name])
    assert {one["name"] for one in found["tensors"]} == set(tensors)
    assert found["file_bytes"] == sum(t.numel() * t.element_size() for t in tensors.values())
    assert json.loads(json.dumps(found)) == found


def test_the_command_prints_a_table_and_what_it_means(capsys, tmp_path):
    code, out, err = call(capsys, write(tmp_path, REDUCED))
    assert (code, err) == (Exit.DONE, "")
    rows = {line.split("  ")[0]: line for line in out.splitlines() if line}
    head = rows["lm_head.weight"]
    assert head.split() == [
        *("lm_head.weight", "21", "x", "16", "BF16", "672"),
        *("rows", "0", "to", "10", "rows", "11", "to", "20"),
    ]
    assert rows["t2d"].endswith("not read      not read")
    assert "layout: speculators" in out.splitlines()
    assert "sampled path at depth 4: yes" in out.splitlines()
    held = [load(tmp_path, rank, 2).bytes for rank in (0, 1)]
    assert f"rank 0 of 2: {held[0]} bytes of weights, draft ids 0 to 10" in out.splitlines()
    assert f"rank 1 of 2: {held[1]} bytes of weights, draft ids 11 to 20" in out.splitlines()


def test_reasons_against_the_sampled_path_are_printed(capsys, tmp_path):
    config = replace(SMALL, block=4, markov_rank=3)
    code, out, _ = call(capsys, write(tmp_path, config))
    assert code == Exit.DONE
    assert "sampled path at depth 4: no: rank_dim: the kernels take a power of two, not 3" in out
    assert "sampled path at depth 5: no: a block of 4 queries gives no 5 positions; rank_dim" in out


def test_json_is_one_document_with_the_same(capsys, tmp_path):
    code, out, err = call(capsys, "--json", write(tmp_path))
    assert (code, err) == (Exit.DONE, "")
    assert json.loads(out) == inspect(tmp_path)


def test_a_damage_is_one_refusal_with_exit_3(capsys, tmp_path):
    path = write(tmp_path)
    damage.cut(path / "model.safetensors", "fc.weight")
    code, out, err = call(capsys, path)
    assert (code, out) == (Exit.REFUSED, "")
    record = dict(line.split(maxsplit=1) for line in err.splitlines())
    assert record["code"] == Code.BAD_CHECKPOINT
    assert record["where"] == f"{path}: fc.weight"
    assert "and" in record["found"]
    code, out, err = call(capsys, path, "--json")
    assert (code, err) == (Exit.REFUSED, "")
    assert json.loads(out)["where"] == f"{path}: fc.weight"


def test_a_gated_head_is_refused_by_name(capsys, tmp_path):
    path = write(tmp_path, tree=config_tree(SMALL) | {"markov_head_type": "gated"})
    code, _, err = call(capsys, path)
    record = dict(line.split(maxsplit=1) for line in err.splitlines())
    assert code == Exit.REFUSED
    assert record["code"] == Code.UNSUPPORTED_CHECKPOINT
    assert (record["expected"], record["found"]) == ("vanilla", "gated")


def test_a_target_lends_what_is_left_out(capsys, tmp_path):
    tensors = random_tensors(FULL_SPECULATORS)
    own = {name: one for name, one in tensors.items() if name not in LENT}
    path = write(tmp_path / "drafter", FULL_SPECULATORS, own)
    code, _, err = call(capsys, path)
    assert code == Exit.REFUSED
    assert "no target's directory was given" in err
    target = write_target(tmp_path / "target", tensors)
    code, out, _ = call(capsys, path, "--target", target, "--json")
    assert code == Exit.DONE
    files = {one["name"]: one["file"] for one in json.loads(out)["tensors"]}
    assert files["lm_head.weight"] == str(target / "model.safetensors")
    assert files["fc.weight"] == str(path / "model.safetensors")


def test_a_path_is_needed(capsys):
    code, _, err = call(capsys)
    assert code == Exit.USAGE
    assert "USAGE" in err


BARE = """
import sys
for name in ("torch", "safetensors", "numpy", "triton"):
    sys.modules[name] = None
from pp4.drafter.inspection import main
raise SystemExit(main(sys.argv[1:]))
"""


def test_it_needs_neither_torch_nor_safetensors(tmp_path):
    path = write(tmp_path, REDUCED)
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(path)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == inspect(path)


def test_the_command_itself_imports_nothing_heavy(tmp_path):
    script = (
        "import sys\nfrom pp4.cli import main\n"
        f"code = main(['drafter', 'inspect', {str(write(tmp_path))!r}, '--json'])\n"
        "heavy = ('torch', 'triton', 'paramiko', 'numpy', 'safetensors', 'pp4.drafter')\n"
        "sys.stderr.write(f'{code} heavy: ' + ' '.join(m for m in heavy if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stderr == "0 heavy: "


def test_the_program_prints_its_refusal_as_json(capsys, tmp_path):
    assert main([str(tmp_path / "gone")]) == Exit.REFUSED
    assert json.loads(capsys.readouterr().out)["refusal"]["code"] == Code.UNREADABLE
