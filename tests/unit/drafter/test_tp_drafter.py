"""A rank's drafter: its branch, its rows against the exact reference, what a row depends on."""

import gc
import threading
import types
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from pp4.drafter.heads import HeadMode
from pp4.drafter.sampling import geometry_of
from pp4.drafter.shapes import Captured, Path
from pp4.drafter.tp_drafter import TPDrafter
from pp4.errors import BadInputError, Code, RefusedError
from pp4.kernels.block import SampledBlock
from pp4.kernels.faults import Fault
from pp4.kernels.link import SoloLink
from tests.unit.drafter.checkpoints import SMALL
from tests.unit.drafter.drafting import (
    CAPPED,
    CONTEXT,
    GREEDY,
    MAPPED,
    PADDING,
    SAMPLED,
    SEVEN,
    SLOTS,
    WIDE,
    Row,
    at_once,
    base_of,
    draft,
    expected,
    never,
    parts_of,
    solo,
)
from tests.unit.drafter.test_selector import Meeting

CONFIGS = {"five": WIDE, "seven": SEVEN, "reduced": MAPPED, "capped": CAPPED}
MIXED = (Row(0, 7, 3), Row(1, 0, 12, GREEDY), Row(2, 20, 149, SAMPLED, round=(1 << 32) - 1))


def greedy(rows):
    return [row and replace(row, mode=GREEDY) for row in rows]


def check(config, rows, n_out, found):
    """Every member of every row, used positions and unused ones."""
    wanted = expected(config, rows, n_out)
    for name in ("ids", "q", "token", "error"):
        used = found[name][:, :n_out]
        assert used.tobytes() == getattr(wanted, name).tobytes(), name
    unused(found, n_out)
    return wanted


def unused(found, n_out):
    for name in found.dtype.names:
        assert not found[name][:, n_out:].any(), name


# -- the sampled path ---------------------------------------------------------------------------


@pytest.mark.parametrize("n_out", [4, 5])
@pytest.mark.parametrize("name", CONFIGS)
def test_sampled_and_greedy_rows_are_those_of_the_exact_reference(name, n_out):
    config = CONFIGS[name]
    captured, found, tail = draft(solo(config, [(3, n_out)]), n_out, MIXED)
    assert captured.path is Path.SAMPLED
    wanted = check(config, MIXED, n_out, found)
    assert not wanted.error.any()
    assert not tail.any()
    # each row had one epoch more at each position, from 1
    assert found["stamp"][:, :n_out].tolist() == [list(range(2, n_out + 2))] * 3


@pytest.mark.parametrize("name", ["five", "reduced"])
def test_the_interpreted_kernel_gives_the_same_bytes(name):
    config, rows = CONFIGS[name], (MIXED[0], PADDING, replace(MIXED[1], request=2))
    raw = []
    for make in (None, SampledBlock):
        drafter = solo(config, [(3, 4)], **({"make_block": make} if make else {}))
        captured, found, _ = draft(drafter, 4, rows)
        check(config, rows, 4, found)
        raw.append(captured.outputs.numpy().tobytes())
    assert raw[0] == raw[1]


@pytest.mark.parametrize("name", CONFIGS)
def test_confidences_are_of_the_anchor_and_the_drafted_tokens(name):
    config = CONFIGS[name]
    for rows, path in ((MIXED, Path.SAMPLED), (greedy(MIXED), Path.ORIGINAL)):
        drafter = solo(config, [(3, 4)])
        captured, found, _ = draft(drafter, 4, rows)
        assert captured.path is path
        hidden, _ = base_of(config, rows, 4)
        anchors = np.array([[row.anchor] for row in rows])
        previous = torch.from_numpy(np.hstack([anchors, found["token"][:, :3]]).astype(np.int64))
        wanted = drafter._model.confidence(hidden[:, :4], previous)
        assert found["confidence"][:, :4].tobytes() == wanted.numpy().tobytes()
        assert (found["confidence"][:, :4] > 0).all()
        unused(found, 4)


def test_without_a_confidence_head_confidences_are_zero():
    config = replace(WIDE, confidence=False, confidence_with_markov=False)
    drafter = solo(config, [(3, 4)])
    for rows in (MIXED, greedy(MIXED)):
        _, found, _ = draft(drafter, 4, rows)
        assert not found["confidence"].any()


# -- the branch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_rows_are_the_original_path_and_equal_the_switch_off(name):
    config, rows = CONFIGS[name], greedy(MIXED)
    on, off = (solo(config, [(3, 4)], on=switch) for switch in (True, False))
    first, by_off, tail = draft(off, 4, MIXED)
    second, by_on, _ = draft(on, 4, rows)
    assert (first.path, second.path) == (Path.ORIGINAL, Path.ORIGINAL)
    assert first.outputs.numpy().tobytes() == second.outputs.numpy().tobytes()
    wanted = expected(config, rows, 4)
    assert by_on["token"][:, :4].tolist() == wanted.token.tolist()
    assert (by_off["ids"][:, :4] == -1).all()
    assert not by_off["q"].any()
    assert not by_off["error"].any()
    assert not by_off["stamp"].any()
    assert not tail.any()
    unused(by_off, 4)
    # a greedy row beside sampled ones draws nothing else than it does alone
    _, mixed, _ = draft(on, 4, MIXED)
    assert mixed["token"][1].tolist() == by_off["token"][1].tolist()
    assert mixed["token"][0].tolist() != by_off["token"][0].tolist()
    assert mixed["confidence"][1].tobytes() == by_off["confidence"][1].tobytes()


def test_one_object_a_path_after_any_order_and_all_greedy_is_the_original_itself():
    drafter = solo(WIDE, [(3, 4), (3, 5)])
    original, _, _ = draft(drafter, 4, greedy(MIXED))
    sampled, _, _ = draft(drafter, 4, MIXED)
    again, _, _ = draft(drafter, 4, [*greedy(MIXED[:2]), PADDING])
    assert again is original
    assert draft(drafter, 4, MIXED)[0] is sampled
    assert sampled is not original
    assert sampled.outputs is not original.outputs
    assert draft(drafter, 5, greedy(MIXED))[0] is not original
    pointers = {one.outputs.data_ptr() for one in (original, again)}
    assert len(pointers) == 1


def test_original_outputs_outlive_sampled_blocks_and_the_other_way_round():
    drafter = solo(WIDE, [(3, 4)])
    original, first, _ = draft(drafter, 4, greedy(MIXED))
    kept = original.outputs.clone()
    sampled, _, _ = draft(drafter, 4, MIXED)
    assert torch.equal(original.outputs, kept)
    other = sampled.outputs.clone()
    draft(drafter, 4, greedy(MIXED))
    assert torch.equal(sampled.outputs, other)
    assert first["token"].any()


def refuses_to_be_made(*_, **__):
    raise AssertionError("a sampled block where sampled drafting is off")


def test_off_nothing_of_the_sampled_path_is_made():
    drafter = solo(WIDE, [(3, 4)], on=False, make_block=refuses_to_be_made, cache_mib=64)
    assert drafter.markov is None
    captured, _, _ = draft(drafter, 4, MIXED)
    assert captured.path is Path.ORIGINAL
    for mode in HeadMode:
        assert drafter.heads((3, 4), (SAMPLED, SAMPLED, GREEDY), mode) is captured


@pytest.mark.parametrize("mode", [one for one in HeadMode if one is not HeadMode.DEFAULT])
def test_another_head_mode_refuses_where_a_row_is_sampled(mode):
    drafter = solo(WIDE, [(3, 4)])
    with pytest.raises(RefusedError) as caught:
        drafter.heads((3, 4), (SAMPLED, GREEDY, GREEDY), mode)
    assert caught.value.refusal.code is Code.UNSUPPORTED_HEAD_MODE
    assert drafter.heads((3, 4), (GREEDY,) * 3, mode).path is Path.ORIGINAL


@pytest.mark.parametrize(
    ("modes", "code"),
    [((SAMPLED, GREEDY), Code.MISSING_SAMPLED_GRAPH), ((GREEDY, GREEDY), Code.MISSING_GRAPH)],
)
def test_a_shape_that_was_not_captured_refuses(modes, code):
    drafter = solo(WIDE, [(3, 4)])
    with pytest.raises(RefusedError) as caught:
        drafter.heads((2, 4), modes)
    assert caught.value.refusal.code is code
    with pytest.raises(RefusedError) as caught:
        drafter.inputs((2, 4))
    assert caught.value.refusal.code is Code.MISSING_GRAPH
    assert drafter.shapes == ((3, 4),)


# -- what a row depends on ----------------------------------------------------------------------


def test_a_row_depends_on_itself_alone():
    """Not on its neighbours, its place, padding, or what a shape drafted before."""
    mine = Row(0, 9, 5)
    others = [Row(1, 20, 77, GREEDY), Row(2, 1, 3), Row(3, 0, 149)]
    seen = []
    for on, rows in (
        (True, [mine, *others[:2]]),
        (True, [others[2], others[0], mine]),
        (True, [PADDING, mine, PADDING]),
        (False, [mine, *others[:2]]),
        (False, [PADDING, PADDING, mine]),
    ):
        drafter = solo(WIDE, [(3, 4)], on=on)
        draft(drafter, 4, [Row(3, 0, 88), PADDING, PADDING])
        _, found, _ = draft(drafter, 4, rows)
        row = found[rows.index(mine)].copy()
        row["stamp"] = 0
        seen.append(row.tobytes())
    assert len(set(seen[:3])) == 1
    assert len(set(seen[3:])) == 1


@pytest.mark.parametrize("on", [True, False])
def test_a_row_of_padding_is_zero_but_for_its_stamp(on):
    drafter = solo(WIDE, [(3, 4)], on=on)
    draft(drafter, 4, MIXED)
    _, found, _ = draft(drafter, 4, [PADDING, MIXED[0], PADDING])
    for place in (0, 2):
        for name in ("ids", "q", "token", "confidence", "error"):
            assert not found[name][place].any(), name
    assert found["token"][1].any()


def test_a_request_goes_on_with_features_of_what_was_accepted():
    """Blocks one after another over a slot that another request had before."""
    drafter = solo(WIDE, [(1, 4)])
    draft(drafter, 4, [Row(5, 24, 1)])
    drafter.cache.close(5)
    row = Row(6, 3, 9)
    for step in range(3):
        _, found, _ = draft(drafter, 4, [row])
        check(WIDE, [row], 4, found)
        # the anchor and one drafted token were accepted, and the target said what comes next
        row = replace(row, length=row.length + 2, anchor=int(found["token"][0, 1]), round=step + 2)


# -- one rank and both --------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_base_logits_of_both_shards_are_those_of_the_ranks_that_hold_one(name):
    config = CONFIGS[name]
    stages = []
    for ranks in ((0, 1), (0,), (1,)):
        drafter = TPDrafter(
            parts_of(config, ranks),
            slots=SLOTS,
            context=CONTEXT,
            cache_mib=0,
            gather=lambda mine: torch.stack([mine, mine]),
            repeated=at_once,
            link=None,
        )
        drafter.prepare([3], [4])
        draft(drafter, 4, MIXED)
        stages.append(drafter._stages[3, 4])
    both, *single = (stage.logits for stage in stages)
    assert both.any()
    assert torch.equal(both, torch.cat(single))


def test_two_ranks_with_a_shard_each_draft_as_one_with_both():
    meeting, found, failed = Meeting(), [None, None], []
    drafters = [
        TPDrafter(
            parts_of(MAPPED, (rank,)),
            slots=SLOTS,
            context=CONTEXT,
            cache_mib=0,
            gather=meeting.of(rank),
            repeated=at_once,
            link=None,
        )
        for rank in (0, 1)
    ]

    def work(rank):
        try:
            drafters[rank].prepare([3], [4])
            found[rank] = draft(drafters[rank], 4, MIXED)[0].outputs.numpy().tobytes()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    alone, _, _ = draft(solo(MAPPED, [(3, 4)], on=False), 4, MIXED)
    assert found == [alone.outputs.numpy().tobytes()] * 2


def test_of_a_second_part_only_its_own_rows_are_kept():
    parts = parts_of(WIDE)
    tensors = {name: one.clone() for name, one in parts[1].tensors.items()}
    gone = {name: weakref.ref(one) for name, one in tensors.items()}
    parts[1] = replace(parts[1], tensors=tensors)
    drafter = TPDrafter(
        parts,
        slots=SLOTS,
        context=CONTEXT,
        cache_mib=0,
        gather=never,
        repeated=at_once,
        link=SoloLink(1),
    )
    del parts, tensors
    gc.collect()
    kept = {name for name, one in gone.items() if one() is not None}
    assert kept == {"lm_head.weight", "markov_head.markov_w2.weight"}
    assert drafter.config == WIDE


# -- recording ----------------------------------------------------------------------------------


def as_on_a_gpu(launch):
    """Launch once before recording, as a capture has to."""
    launch()
    return launch


@pytest.mark.parametrize("name", ["reference", "kernel"])
def test_recording_leaves_epochs_and_words_of_errors_as_they_are(name):
    link = SoloLink(3, start=41)
    before = [one.clone() for one in (link.epochs, link.own_error, link._words)]
    more = {"make_block": SampledBlock} if name == "kernel" else {}
    drafter = solo(SMALL, [(3, 4)], repeated=as_on_a_gpu, link=link, **more)
    after = [link.epochs, link.own_error, link._words]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    rows = [Row(0, 7, 3), PADDING, Row(1, 2, 9)]
    _, found, _ = draft(drafter, 4, rows)
    check(SMALL, rows, 4, found)
    assert found["stamp"][:, :4].tolist() == [[42, 43, 44, 45], [41] * 4, [42, 43, 44, 45]]


def test_every_batch_with_every_depth_is_recorded_original_first():
    order = []

    def recording(launch):
        order.append(type(launch.__self__).__name__)
        return launch

    drafter = solo(WIDE, repeated=recording)
    drafter.prepare([3, 1], [5, 4])
    assert drafter.shapes == ((1, 4), (1, 5), (3, 4), (3, 5))
    assert order == ["OriginalBody", "SampledBody"] * 4


def test_inputs_are_one_buffer_that_stays():
    drafter = solo(WIDE, [(3, 4)])
    words = drafter.inputs((3, 4))
    assert (words.shape, words.dtype) == ((24,), torch.int32)
    draft(drafter, 4, MIXED)
    draft(drafter, 4, greedy(MIXED))
    assert drafter.inputs((3, 4)) is words


# -- errors -------------------------------------------------------------------------------------


def test_words_of_errors_stand_at_the_end_and_rows_say_the_same():
    link = SoloLink(3)
    drafter = solo(WIDE, [(3, 4)], link=link)
    link.told[0] = link.told[int(Fault.PEER_TIMEOUT)] = 1
    _, found, tail = draft(drafter, 4, [MIXED[0], PADDING, MIXED[1]])
    assert tail[0] == int(Fault.PEER_TIMEOUT)
    assert tail[1:].tolist() == [1, 0, 0, 1, 0, 0, 0, 0]
    timed_out = [int(Fault.PEER_TIMEOUT)] * 4
    assert found["error"][:, :4].tolist() == [timed_out, [0] * 4, timed_out]
    for place in (0, 2):
        assert (found["ids"][place, :4] == -1).all()
        assert (found["token"][place, :4] == -1).all()
        assert not found["q"][place].any()
        assert not found["stamp"][place].any()
    unused(found, 4)


BAD = {
    "a world of one": lambda: solo_of([parts_of(WIDE)[0], parts_of(WIDE)[0]]),
    "the wrong order": lambda: solo_of(parts_of(WIDE)[::-1]),
    "a link of both shards for one": lambda: solo_of(parts_of(WIDE, (1,))),
    "no slot": lambda: solo(WIDE, slots=0),
    "another vocabulary": lambda: solo(WIDE, geometry=geometry_of(MAPPED)),
    "no batch": lambda: solo(WIDE).prepare([], [4]),
    "no row": lambda: solo(WIDE).prepare([0], [4]),
    "more rows than the link": lambda: solo(WIDE).prepare([5], [4]),
    "more positions than queries": lambda: solo(WIDE, on=False).prepare([1], [6]),
    "a shape twice": lambda: solo(WIDE).prepare([1, 1], [4]),
    "a shape again": lambda: solo(WIDE, [(1, 4)]).prepare([1], [4]),
    "another number of modes": lambda: solo(WIDE, [(3, 4)]).heads((3, 4), (SAMPLED,)),
}


def solo_of(parts):
    return TPDrafter(
        parts,
        slots=1,
        context=CONTEXT,
        cache_mib=0,
        gather=never,
        repeated=at_once,
        link=SoloLink(1),
    )


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(name):
    with pytest.raises(BadInputError):
        BAD[name]()


def test_a_depth_that_the_sampled_path_lacks_is_refused_before_anything_is_recorded():
    drafter = solo(WIDE)
    with pytest.raises(RefusedError) as caught:
        drafter.prepare([1], [4, 3])
    assert caught.value.refusal.code is Code.UNSUPPORTED_CHECKPOINT
    assert "depth 3" in caught.value.refusal.found
    assert drafter.shapes == ()


# -- the Markov cache ---------------------------------------------------------------------------


def previous_of(rows, found, n_out):
    """Tokens before each position of the active rows."""
    return [
        token
        for row, one in zip(rows, found, strict=True)
        if row is not None
        for token in (row.anchor, *one["token"][: n_out - 1].tolist())
    ]


@pytest.mark.parametrize("name", ["reference", "kernel"])
def test_cached_rows_give_the_bits_of_uncached_ones(name):
    more = {"make_block": SampledBlock} if name == "kernel" else {}
    drafter = solo(SMALL, [(2, 4)], cache_mib=1, **more)
    rows = [Row(0, 7, 3), Row(1, 2, 9)]
    raw = []
    for _ in range(2):
        _, found, _ = draft(drafter, 4, rows)
        check(SMALL, rows, 4, found)
        raw.append([row["q"].tobytes() + row["token"].tobytes() for row in found])
        previous = previous_of(rows, found, 4)
        drafter.markov.used(previous)
        drafter.markov.fill(len(previous))
    assert raw[0] == raw[1]
    assert (drafter.markov.misses, drafter.markov.hits) == (8, 8)


def test_a_cached_row_is_really_read():
    drafter = solo(SMALL, [(1, 4)], cache_mib=1)
    rows = [Row(0, 7, 3)]
    _, found, _ = draft(drafter, 4, rows)
    drafter.markov.used(previous_of(rows, found, 4))
    drafter.markov.fill(8)
    drafter.markov.bias[:, drafter.markov.slots[3]] = torch.tensor(0x4400, dtype=torch.int16)
    drafter.markov.bias[0, drafter.markov.slots[3], 5] = 0x4600
    _, spoiled, _ = draft(drafter, 4, rows)
    assert spoiled["token"][0, 0] == 5
    assert spoiled["ids"][0, 0, 0] == 5


def test_the_cache_is_not_filled_between_a_sampled_block_and_its_end():
    drafter = solo(SMALL, [(1, 4)], cache_mib=1)
    draft(drafter, 4, greedy([Row(0, 7, 3)]))
    drafter.markov.fill(1)
    draft(drafter, 4, [Row(0, 7, 3)])
    with pytest.raises(BadInputError, match="in flight"):
        drafter.markov.fill(1)
    drafter.markov.used([3])
    assert drafter.markov.fill(1) == 1


def test_a_recorded_shape_keeps_the_buffers_that_it_was_recorded_over():
    """A recording on a GPU holds addresses alone; nobody else may be given them meanwhile."""
    stage = types.SimpleNamespace(words=torch.zeros(3, dtype=torch.int32))

    class Body:
        path = Path.ORIGINAL
        packed = stage

        def launch(self):
            """Launch nothing."""

    body = Body()
    seen = weakref.ref(body)
    captured = Captured(body, (1, 4), lambda launch: lambda: None)
    del body
    gc.collect()
    assert seen() is not None
    assert captured.replay() is captured
