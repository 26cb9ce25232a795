"""The reader of PTX on texts of a few lines, and on what the compiler really wrote."""

import pytest

from pp4.kernels.ptx import faults

CHAIN = "bar.sync 0;\n@%p1 atom.global.gpu.acq_rel.add.u64 %rd1, [%rd2], 1;\n"
SIGNAL = "bar.sync 0;\n@first st.release.sys.global.s64 [%rd1], %rd2;\n"
OWN = "ld.acquire.gpu.global.s64 word, [%rd1];\n"
POLL = "ld.acquire.sys.global.s64 word, [%rd1];\n"
GUARD = "bar.sync 0;\n"
WAIT = "POLL:\n" + OWN + 2 * POLL + GUARD
GOOD = CHAIN + 3 * SIGNAL + 2 * WAIT


def of(text):
    return faults(GOOD + text, paired=True)


def test_a_good_text():
    assert of("") == ()
    assert faults(2 * CHAIN + WAIT, paired=False) == ()


def test_an_empty_text_is_not_good():
    assert len(faults("", paired=True)) == 4
    assert len(faults("", paired=False)) == 2


STORE = SIGNAL.splitlines()[1]
ORDERED = {
    "stores before the barrier": "st.global.b64 [%rd1], %rd2;\n" + SIGNAL,
    "arithmetic between": "bar.sync \t0;\nadd.s64 %rd1, %rd2, 1;\n" + STORE,
    "shared memory between": "bar.sync 0;\nst.shared.b64 [%r1], %rd2;\n" + STORE,
    "a matrix to shared": "bar.sync 0;\nstmatrix.sync.aligned.m8n8.x4.shared.b16 [a], {b};\n"
    + STORE,
    "the aligned spelling": "barrier.sync.aligned 0;\n" + STORE,
    "a comment that names one": "// st.release.sys.global.s64 [a], b;\n",
    "a relaxed count": "red.global.gpu.relaxed.add.s64 [%rd1], 1;\n",
}


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_allowed(name):
    assert of(ORDERED[name]) == ()


UNORDERED = {
    "a store between": ("bar.sync 0;\nst.global.b64 [%rd1], %rd2;\n" + STORE, "a store"),
    "a predicated store between": ("bar.sync 0;\n@%p1 st.global.b32 [a], b;\n" + STORE, "a store"),
    "a store to any space": ("bar.sync 0;\nst.b32 [%rd1], %r2;\n" + STORE, "a store"),
    "a wide store": ("bar.sync 0;\nst.global.v2.b64 [a], {b, c};\n" + STORE, "a store"),
    "a count between": ("bar.sync 0;\nred.global.gpu.add.u32 [%rd1], 1;\n" + STORE, "a store"),
    "two releases after one barrier": (SIGNAL + STORE, "a store"),
    "a label between": ("bar.sync 0;\n$L__BB0_1:\n" + STORE, "a label on line"),
    "a label with a comment": ("bar.sync 0;\n$L_1:    // %x\n" + STORE, "a label on line"),
    "half a block": ("bar.sync 1, 64;\n" + STORE, "a store"),
    "a barrier that not all pass": ("@%p1 bar.sync 0;\n" + STORE, "a store"),
    "a warp barrier": ("bar.warp.sync -1;\n" + STORE, "a store"),
    "a count that releases": ("@%p1 atom.global.gpu.release.add.u64 a, [b], 1;\n", "a store"),
    "a maximum that releases": ("atom.acq_rel.gpu.global.max.s64 a, [b], c;\n", "a store"),
    "inside braces": ("{ st.release.gpu.global.s64 [a], b;\n}", "a store"),
}


@pytest.mark.parametrize("name", UNORDERED)
def test_releases_that_other_stores_may_overtake(name):
    text, expected = UNORDERED[name]
    # a store first, or the barrier of the text before would count
    (line,) = of("st.global.b32 [%rd9], %r9;\n" + text)
    assert "no block barrier right before it" in line
    assert expected in line


FORBIDDEN = {
    "ex2.approx.f32 %f1, %f2;": "approximate",
    "ex2.approx.ftz.f32 %f1, %f2;": "approximate",
    "lg2.approx.f32 %f1, %f2;": "approximate",
    "rcp.approx.ftz.f64 %fd1, %fd2;": "approximate",
    "sqrt.approx.f32 %f1, %f2;": "approximate",
    "div.full.f32 %f1, %f2, %f3;": "approximate",
    "div.approx.f32 %f1, %f2, %f3;": "approximate",
    "@%p1 fma.rn.f32 %f1, %f2, %f3, %f4;": "fused",
    "fma.rn.f64 %fd1, %fd2, %fd3, %fd4;": "fused",
    "fma.rn.bf16x2 %r1, %r2, %r3, %r4;": "fused",
    "mad.rn.f32 %f1, %f2, %f3, %f4;": "fused",
    "add.ftz.f32 %f1, %f2, %f3;": "flushed",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r1}, {%r2}, {%f2};": "an order",
    "red.relaxed.sys.global.add.u64 [%rd1], 1;": "read-modify-write",
    "atom.global.sys.relaxed.exch.b64 %rd1, [%rd2], %rd3;": "read-modify-write",
    "st.relaxed.sys.global.s64 [%rd1], %rd2;": "no release",
    "st.volatile.global.s64 [%rd1], %rd2;": "no release",
    "ld.relaxed.sys.global.s64 %rd1, [%rd2];": "no acquire",
    "ld.relaxed.sys.global.s64 %rd1, [%rd2];\nor.b64 a, b, c;": "no acquire",
}


@pytest.mark.parametrize("instruction", FORBIDDEN)
def test_instructions_that_may_not_appear(instruction):
    (line,) = of(instruction + "\n")
    assert FORBIDDEN[instruction] in line
    assert f"line {GOOD.count(chr(10)) + 1}: " in line


ALLOWED = [
    "mul.rn.f32 %f1, %f2, %f3;",
    "add.rn.f32 %f1, %f2, %f3;",
    "div.rn.f64 %fd1, %fd2, %fd3;",
    "mad.lo.s64 %rd1, %rd2, %rd3, %rd4;",
    "mad.wide.u32 %rd1, %r2, %r3, %rd4;",
    "ld.volatile.global.b64 %rd1, [%rd2];",
    "ld.acquire.gpu.global.s64 %rd1, [%rd2];\nbar.sync 0;\nst.global.b32 [%rd1], %r2;",
    "ld.acquire.gpu.global.s64 %rd1, [%rd2];\nst.shared.u32 [verdict], %r1;",
    "ld.relaxed.sys.global.s64 %rd1, [%rd2];\nld.acquire.sys.global.s64 a, [b];\nbar.sync 0;",
    "cvt.rzi.s64.f64 %rd1, %fd1;",
    ".reg .f32 fma;",
]


@pytest.mark.parametrize(
    "access",
    ["ld.global.b64 %rd1, [%rd2];", "ld.volatile.global.b64 a, [b];", "st.global.b32 [a], b;"],
)
def test_accesses_between_a_poll_and_its_barrier(access):
    (line,) = of(POLL + access + "\n" + GUARD)
    assert "no barrier since the poll" in line


@pytest.mark.parametrize("instruction", ALLOWED)
def test_instructions_that_may(instruction):
    assert of(instruction + "\n") == ()


@pytest.mark.parametrize(
    ("text", "paired", "expected"),
    [
        (3 * SIGNAL + 2 * WAIT, True, "retirement: no"),
        (CHAIN + 2 * SIGNAL + 2 * WAIT, True, "signals: 2"),
        (CHAIN + 3 * SIGNAL + WAIT + OWN + POLL + GUARD, True, "waits: 3"),
        (CHAIN + 3 * SIGNAL + WAIT + 2 * POLL + GUARD, True, "waits: 1 looks"),
        (WAIT, False, "retirement: no"),
        (CHAIN, False, "waits: 0 looks"),
    ],
)
def test_signals_that_are_missing(text, paired, expected):
    (line,) = faults(text, paired=paired)
    assert expected in line


def test_both_specialisations_of_the_product_are_good(compiled):
    assert faults(compiled.pair["ptx"], paired=True) == ()
    assert faults(compiled.solo["ptx"], paired=False) == ()


def test_a_solo_text_is_no_pair(compiled):
    assert any("signals" in line for line in faults(compiled.solo["ptx"], paired=True))


def without(text, place, gone, reach):
    """A text without the lines that hold ``gone`` within some lines after each ``place``."""
    kept, near = [], 0
    for line in text.splitlines():
        near = reach if place in line else max(0, near - 1)
        if not (near and gone in line):
            kept.append(line)
    return "\n".join(kept)


def test_a_poll_without_the_barrier_behind_it_is_found(compiled):
    bare = without(compiled.pair["ptx"], "SHARE:", "bar.sync", 5)
    assert bare.count("bar.sync") == compiled.pair["ptx"].count("bar.sync") - 4
    found = faults(bare, paired=True)
    assert found
    assert all("no barrier since the poll" in line for line in found)


def test_a_wait_that_is_deaf_to_its_own_error_is_found(compiled):
    for text, paired in ((compiled.pair["ptx"], True), (compiled.solo["ptx"], False)):
        deaf = without(text, "STICKY:", "ld.acquire.gpu", 4)
        assert any("own error word" in line for line in faults(deaf, paired=paired))


@pytest.mark.parametrize("operation", ["add", "mul", "sub"])
def test_roundings_that_may_be_contracted_are_found(compiled, operation):
    text = compiled.pair["ptx"].replace(f"{operation}.rn.f32", f"{operation}.f32")
    assert text != compiled.pair["ptx"]
    assert any("contracted" in line for line in faults(text, paired=True))
