"""The pair that comes with pp4: found, named by its digests, brought into a HOLD."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pp4.errors import Code, RefusedError
from pp4.measure.admitting import model_digest
from pp4.measure.schedule import STANDARD
from pp4.receipts.digests import sha256_hex
from pp4.run import bundled as module
from pp4.run.bundled import bring_pair, bundled, pair_there
from pp4.wire.measuring import Pair
from pp4.worker.frozen_checkpoint import digest_of
from tests.faults.windows import window

ROOT = Path(__file__).parents[3]


def copy(place, **changes):
    """A small pair in a directory."""
    files = {
        "target/config.json": b"{}",
        "target/model.safetensors": b"t",
        "drafter/config.json": b"{}",
        "drafter/model.safetensors": b"d",
        "prompts.jsonl": b"[1]\n",
        **changes,
    }
    for name, data in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is not None:
            path.write_bytes(data)
    return place


def test_a_checkout_has_it_and_every_file_counts():
    found = bundled()
    assert found.directory == ROOT / "examples" / "mini"
    parts = [found.directory / part for part in ("target", "drafter")]
    there = {path for part in parts for path in part.iterdir()} | {
        found.directory / "prompts.jsonl"
    }
    names = {path.relative_to(found.directory).as_posix() for path in there}
    assert {name for name, _ in found.files} == names
    for name, digest in found.files:
        assert sha256_hex((found.directory / name).read_bytes()) == digest


def test_the_drafter_has_the_digest_that_a_worker_gives_it():
    found = bundled()
    assert found.checkpoint_sha256 == digest_of(found.directory / "drafter").sha256


def test_an_installed_package_comes_first_and_none_is_refused(tmp_path):
    one, other = copy(tmp_path / "one"), copy(tmp_path / "other")
    assert bundled((tmp_path / "none", one, other)).directory == one
    with pytest.raises(RefusedError) as raised:
        bundled((tmp_path / "none",))
    assert raised.value.refusal.code is Code.UNREADABLE
    assert str(tmp_path / "none") in raised.value.refusal.found


def test_a_drafter_without_weights_is_refused(tmp_path):
    place = copy(tmp_path, **{"drafter/model.safetensors": None})
    with pytest.raises(RefusedError) as raised:
        bundled((place,))
    assert raised.value.refusal.found == "no model.safetensors"


def test_the_wheel_has_it_where_an_installed_package_looks():
    text = (ROOT / "pyproject.toml").read_text()
    for part in ("target", "drafter", "prompts.jsonl"):
        assert f'"examples/mini/{part}" = "pp4/mini/{part}"' in text
    assert module._PLACES[0] == ROOT / "pp4" / "mini"


def test_what_is_brought_is_in_the_hold_and_checked_there(tmp_path):
    pair = bundled((copy(tmp_path / "pair"),))
    with window(tmp_path) as one:
        place = SimpleNamespace(host=one._host)
        drafter = Path(bring_pair(pair, one, place))
        work = Path(one.granted.work)
        assert drafter == work / "pair" / "drafter"
        there = pair_there()
        assert (work / there.prompts).read_bytes() == b"[1]\n"
        assert sorted(path.name for path in (work / there.target).iterdir()) == [
            "config.json",
            "model.safetensors",
        ]
    assert not work.exists()


def test_a_file_that_changes_meanwhile_is_refused(tmp_path):
    place = copy(tmp_path / "pair")
    pair = bundled((place,))
    (place / "drafter" / "model.safetensors").write_bytes(b"other")
    with pytest.raises(RefusedError) as raised, window(tmp_path) as one:
        bring_pair(pair, one, SimpleNamespace(host=one._host))
    assert raised.value.refusal.code is Code.DIGEST_MISMATCH


def test_what_decodes_is_told_apart_by_its_digest(tmp_path):
    pair = bundled((copy(tmp_path / "a"),))
    other = bundled((copy(tmp_path / "b", **{"prompts.jsonl": b"[2]\n"}),))
    theirs = Pair(target="/t", drafter="/d", prompts="/p")
    hotter = STANDARD.model_copy(update={"temperatures": ("0.7",)})
    longer = STANDARD.model_copy(update={"headline": 1, "seed": 2})
    found = [
        model_digest(STANDARD, pair_there(), pair),
        model_digest(STANDARD, pair_there(), other),
        model_digest(STANDARD, theirs, None),
        model_digest(STANDARD, theirs.model_copy(update={"prompts": "/q"}), None),
        model_digest(hotter, pair_there(), pair),
    ]
    assert len(set(found)) == len(found)
    # how often is no part of what decodes, and has a name of its own in a receipt
    assert model_digest(longer, pair_there(), pair) == found[0]
