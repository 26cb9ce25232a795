"""What a rank has primed, by name; what a delayed rank is told; what a record is worth."""

from types import SimpleNamespace

import pytest

from pp4.errors import Code, Pp4Error, WrongError
from pp4.kernels.geometry import Geometry
from pp4.kernels.priming import Priming, specialisation
from pp4.wire.facts import Compiled, Shape
from pp4.wire.frames import Reply, Request
from pp4.worker import compiling
from pp4.worker.compiling import Compiler, Homes, sources_digest
from pp4.worker.owner import Owner
from tests.unit.worker.owners import SHAPE

GEOMETRY = Geometry(**SHAPE)
PAIR, SOLO = (specialisation(GEOMETRY, shards) for shards in (1, 2))
MUTANT = specialisation(GEOMETRY, 1, "missing_stamp")


def refused(priming, key):
    with pytest.raises(Pp4Error) as caught:
        priming.require(key)
    return caught.value.refusal.code


def test_pair_solo_and_control_have_names_of_their_own():
    assert len({PAIR, SOLO, MUTANT, specialisation(GEOMETRY, 1, "t0_draws")}) == 4


def test_a_control_never_stands_for_the_product():
    priming = Priming()
    priming.add(MUTANT)
    priming.seal()
    priming.require(MUTANT)
    assert refused(priming, PAIR) is Code.UNPRIMED


def test_a_control_is_planted_before_the_seal_or_not_at_all():
    priming = Priming()
    priming.add(PAIR)
    priming.seal()
    with pytest.raises(WrongError) as caught:
        priming.add(MUTANT)
    assert caught.value.refusal.code is Code.COMPILED_AFTER_PRIMING
    assert caught.value.refusal.found == MUTANT
    assert refused(priming, MUTANT) is Code.UNPRIMED
    # what is there already may come again
    priming.add(PAIR)


def test_nothing_is_required_before_the_seal():
    priming = Priming()
    priming.add(PAIR)
    assert refused(priming, PAIR) is Code.UNPRIMED


def test_the_product_never_stands_for_a_control_or_for_solo():
    priming = Priming()
    priming.add(PAIR)
    priming.seal()
    priming.require(PAIR)
    assert refused(priming, MUTANT) is Code.UNPRIMED
    assert refused(priming, SOLO) is Code.UNPRIMED


# -- a delayed rank -------------------------------------------------------------------------


class Ends:
    """A pair whose ranks refuse to be primed at once; writes down what it is told."""

    broken = None

    def __init__(self, refusal):
        self.ends = [SimpleNamespace(rank=rank, settled=False, events=[]) for rank in (0, 1)]
        for end in self.ends:
            end.answer = lambda verb: Reply(sequence=1, refusal=refusal)
            end.reached = lambda event, end=end: end.settled
        self.told = []

    def __getitem__(self, rank):
        return self.ends[rank]

    def ask(self, rank, verb, arguments):
        self.told.append((rank, verb))
        self.ends[rank].settled = True

    def resume(self, rank):
        self.told.append((rank, "resume"))

    def until(self, condition, deadline, doing):
        assert condition()


def test_a_delayed_rank_that_answers_instead_is_not_told_to_go_on(tmp_path):
    refusal = {
        **dict.fromkeys(("where", "expected", "found", "source", "host", "left", "next"), "x"),
        "code": "COMPILED_AFTER_PRIMING",
    }
    owner = Owner(Homes(tmp_path, tmp_path))
    owner._pair = Ends(refusal)
    asked = {"shape": SHAPE, "delayed": 1}
    reply = owner.answer(Request(sequence=1, verb="prime", arguments=asked))
    assert reply.refusal["code"] == "COMPILED_AFTER_PRIMING"
    assert owner._pair.told == [(0, "prime"), (1, "prime")]


# -- records --------------------------------------------------------------------------------


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that writes binaries of a few bytes; -> it and what was compiled."""
    asked = []

    def compile_apart(shape, *, shards, control, directory):
        asked.append((shape, shards))
        home = directory / "triton" / "hash"
        home.mkdir(parents=True, exist_ok=True)
        digests = {}
        for kind in ("ptx", "cubin"):
            data = f"{kind}{shape}{shards}".encode()
            (home / f"{shards}.{kind}").write_bytes(data)
            digests[f"{kind}_sha256"] = compiling.hashlib.sha256(data).hexdigest()
        return Compiled(target="sm_90", faults=(), **digests)

    monkeypatch.setattr(compiling, "compile_apart", compile_apart)
    return Compiler(tmp_path / "rank-0"), asked


def test_a_record_spares_the_compiler_only_where_it_may(compiler):
    one, asked = compiler
    shape, other = Shape(**SHAPE), Shape(**{**SHAPE, "tile": 64})
    first, recorded = one.prime(shape, 1, recorded=True)
    assert not recorded
    assert one.prime(shape, 1, recorded=True) == (first, True)
    assert one.prime(shape, 1, recorded=False) == (first, False)
    assert not one.prime(shape, 2, recorded=True)[1]
    assert not one.prime(other, 1, recorded=True)[1]
    assert asked == [(shape, 1), (shape, 1), (shape, 2), (other, 1)]


@pytest.mark.parametrize("name", ["1.ptx", "1.cubin"])
@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_text("x")])
def test_a_record_without_its_binary_is_none(compiler, tmp_path, name, spoil):
    one, _ = compiler
    one.prime(Shape(**SHAPE), 1, recorded=True)
    spoil(tmp_path / "rank-0" / "triton" / "hash" / name)
    assert not one.prime(Shape(**SHAPE), 1, recorded=True)[1]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"target": "sm_90"}', "\x00"])
def test_a_record_that_cannot_be_read_is_none(compiler, tmp_path, text):
    one, _ = compiler
    one.prime(Shape(**SHAPE), 1, recorded=True)
    (record,) = (tmp_path / "rank-0").glob("*.json")
    record.write_text(text)
    assert not one.prime(Shape(**SHAPE), 1, recorded=True)[1]


def test_other_sources_are_other_records(compiler, monkeypatch):
    one, _ = compiler
    one.prime(Shape(**SHAPE), 1, recorded=True)
    monkeypatch.setattr(compiling, "sources_digest", lambda: "other")
    assert not one.prime(Shape(**SHAPE), 1, recorded=True)[1]


def test_every_source_of_a_kernel_counts(tmp_path):
    (tmp_path / "device").mkdir()
    (tmp_path / "device" / "x.py").write_text("a")
    before = sources_digest(tmp_path)
    (tmp_path / "device" / "x.py").write_text("b")
    changed = sources_digest(tmp_path)
    (tmp_path / "device" / "x.py").rename(tmp_path / "x.py")
    assert len({before, changed, sources_digest(tmp_path)}) == 3
