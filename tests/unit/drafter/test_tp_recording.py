"""A rank's drafter: shards together and apart, recording, errors, and the Markov cache."""

import gc
import threading
import types
import weakref
from dataclasses import replace

import pytest
import torch

from pp4.drafter.sampling import geometry_of
from pp4.drafter.shapes import Captured, Path
from pp4.drafter.tp_drafter import TPDrafter
from pp4.errors import BadInputError, Code, RefusedError
from pp4.kernels.block import SampledBlock
from pp4.kernels.faults import Fault
from pp4.kernels.link import SoloLink
from tests.unit.drafter.checkpoints import SMALL
from tests.unit.drafter.drafting import (
    CONFIGS,
    CONTEXT,
    MAPPED,
    MIXED,
    PADDING,
    SAMPLED,
    SLOTS,
    WIDE,
    Row,
    at_once,
    check,
    draft,
    greedy,
    never,
    parts_of,
    solo,
    unused,
)
from tests.unit.drafter.test_selector import Meeting

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


# -- recordings ---------------------------------------------------------------------------------


def test_a_recorded_shape_keeps_the_buffers_that_it_was_recorded_over():
    """A recording on a GPU holds addresses alone; nobody else may be given them meanwhile."""

    class Body:
        path = Path.ORIGINAL
        packed = types.SimpleNamespace(words=torch.zeros(3, dtype=torch.int32))

        def launch(self):
            """Launch nothing."""

    body = Body()
    seen = weakref.ref(body)
    captured = Captured(body, (1, 4), lambda launch: lambda: None)
    del body
    gc.collect()
    assert seen() is not None
    assert captured.replay() is captured


def test_over_another_link_the_same_rows_are_drafted_and_stamped_by_its_epochs():
    drafter = solo(SMALL, [(1, 4)], cache_mib=1)
    original = drafter.heads((1, 4), [0])
    rows = [Row(0, 7, 3)]
    _, before, _ = draft(drafter, 4, rows)
    drafter.markov.used([3])
    drafter.relink(SoloLink(3, start=1000))
    _, after, _ = draft(drafter, 4, rows)
    for member in ("ids", "q", "token", "confidence"):
        assert after[member].tobytes() == before[member].tobytes()
    assert after["stamp"][0, :4].tolist() == [1001, 1002, 1003, 1004]
    assert drafter.heads((1, 4), [0]) is original


def test_a_drafter_without_a_sampled_path_takes_no_link():
    drafter = solo(SMALL, [(1, 4)], on=False)
    with pytest.raises(BadInputError, match="sampled path"):
        drafter.relink(SoloLink(3))
