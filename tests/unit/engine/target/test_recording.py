"""Runs that are recorded: tokens laid into the same arrays, results computed into the same ones."""

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.engine.interface import Row
from pp4.engine.measured.targets import Sized
from pp4.engine.target import causal
from pp4.engine.target.laying import Added, Laid
from pp4.engine.target.recording import Numbers, Plain
from tests.unit.engine.target.checkpoints import SMALL, TAPS, target_of, weights_of
from tests.unit.engine.target.stepping import pieces, run, tokens_of

CPU = torch.device("cpu")
SLOTS, WINDOW = 3, 6


def tensors_of(found):
    return found if isinstance(found, tuple) else (found,)


class Repeating(Plain):
    """What a CUDA graph is to who uses it: every run computes into the tensors of the first."""

    def __init__(self):
        super().__init__(CPU)
        self.recorded = self.runs = 0

    def record(self, launch):
        self.recorded += 1
        launch()
        given = launch()

        def again():
            self.runs += 1
            for old, new in zip(tensors_of(given), tensors_of(launch()), strict=True):
                old.copy_(new)
            return given

        return again


@settings(max_examples=15)
@given(st.integers(0, 12), st.integers(1, 14), st.integers(0, SLOTS - 1), st.data())
def test_what_is_recorded_gives_the_bits_of_plain_calls(prompt, stepped, slot, data):
    tokens = tokens_of(prompt + stepped, SMALL.vocab)
    cut = data.draw(
        pieces(stepped, slot=slot, slots=SLOTS, window=WINDOW, vocab=SMALL.vocab), "cut"
    )
    plain, recorded = target_of(SMALL), target_of(SMALL, recorder=Repeating())
    for _ in range(2):
        found, expected = (run(one, tokens, prompt, cut, slot) for one in (recorded, plain))
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])


def test_recording_is_over_when_a_target_is_there():
    recorder = Repeating()
    target = target_of(SMALL, context=200, recorder=recorder)
    assert (recorder.recorded, recorder.runs) == (2, 0)
    # 130 tokens are three windows
    target.prefill(1, tokens_of(130, SMALL.vocab))
    target.step([Row(1, [1, 2])])
    target.step([Row(0, [3])])
    assert (recorder.recorded, recorder.runs) == (2, 5)


def test_recording_leaves_the_cache_as_it_was():
    decoder = target_of(SMALL, recorder=Repeating())._decoder
    for kept in (decoder._keys, decoder._values):
        assert not kept[:, :SLOTS].any()
        assert kept[:, SLOTS].any()


def test_a_step_is_valid_until_the_next_and_a_prompt_for_good():
    target = target_of(SMALL, context=200, recorder=Repeating())
    tokens = tokens_of(150, SMALL.vocab)
    prompt = target.prefill(0, tokens)
    first = target.step([Row(0, [1, 2])])
    kept = prompt.clone(), first.logits.clone(), first.features.clone()
    target.prefill(1, tokens[:90][::-1])
    # another prompt is no step
    assert torch.equal(first.logits, kept[1])
    assert torch.equal(first.features, kept[2])
    target.step([Row(0, [3, 4])])
    assert torch.equal(prompt, kept[0])
    assert not torch.equal(first.logits[0, 0], kept[1][0, 0])


class Stream:
    """What a device has to do yet, in order; nothing of it is done before somebody waits."""

    def __init__(self):
        self.waiting = []

    def settle(self, last=None):
        """Do all of it, or what there is up to one thing."""
        while self.waiting and (last is None or last in self.waiting):
            self.waiting.pop(0)()


class LateNumbers(Numbers):
    """Numbers apart from what the host writes, and copied late."""

    def __init__(self, count, stream):
        super().__init__(count, CPU)
        self.there, self.stream = torch.zeros(count, dtype=torch.int64), stream
        self.waits, self.copy = 0, None

    def writable(self):
        if self.copy in self.stream.waiting:
            self.waits += 1
            self.stream.settle(self.copy)
        return super().writable()

    def send(self):
        # another one each time, as an event is recorded again
        self.copy = lambda: self.there.copy_(self._here)
        self.stream.waiting.append(self.copy)


class Late:
    """Records for a stream that is far behind."""

    def __init__(self):
        self.stream, self.made = Stream(), []

    def numbers(self, count):
        self.made.append(LateNumbers(count, self.stream))
        return self.made[-1]

    def record(self, launch):
        self.stream.settle()
        given = launch()

        def again():
            def computed():
                for old, new in zip(tensors_of(given), tensors_of(launch()), strict=True):
                    old.copy_(new)

            self.stream.waiting.append(computed)
            return given

        return again


def test_a_device_that_is_behind_reads_what_was_meant_for_it():
    """Steps that nobody waits for: their tokens are not written over before they are copied."""
    tokens, late = tokens_of(12, SMALL.vocab), Late()
    target, plain = target_of(SMALL, recorder=late), target_of(SMALL)
    for first in range(0, 12, 3):
        rows = [Row(slot, tokens[first : first + 2 + slot % 2]) for slot in range(SLOTS)]
        found, expected = target.step(rows), plain.step(rows)
        for one in (target, plain):
            for slot in range(SLOTS):
                one.keep(slot, 2)
    assert late.stream.waiting
    late.stream.settle()
    for slot in range(SLOTS):
        kept = 2 + slot % 2
        assert torch.equal(found.logits[slot, :kept], expected.logits[slot, :kept])
        assert torch.equal(found.features[slot, :kept], expected.features[slot, :kept])
    # all steps but the first were written while another was on its way
    assert [one.waits for one in late.made] == [0, 3]


def test_tokens_lie_where_they_are_said_to():
    laid = Laid(Plain(CPU), 3, 4, 9)
    padding = [0, 0, 0, 0]
    assert laid.windows.written.tolist() == [[9] * 4] * 3
    for _ in range(2):
        laid.lay([Added(2, 5, 7, [30, 31, 32, 33]), Added(0, 6, 1, (20, 21))])
        assert laid.windows.tokens.tolist() == [[20, 21, 0, 0], padding, [30, 31, 32, 33]]
        assert laid.windows.positions.tolist() == [[1, 2, 0, 0], padding, [7, 8, 9, 10]]
        assert laid.windows.written.tolist() == [[6, 6, 9, 9], [9] * 4, [5] * 4]
        assert laid.slots.tolist() == [5, 6, 0]
    there = laid.windows.tokens.data_ptr(), laid.slots.data_ptr()
    laid.lay([Added(1, 4, 0, [8])])
    # nothing of what lay there before, and in the same place
    assert laid.windows.tokens.tolist() == [padding, [8, 0, 0, 0], padding]
    assert laid.windows.positions.tolist() == [padding] * 3
    assert laid.windows.written.tolist() == [[9] * 4, [4, 9, 9, 9], [9] * 4]
    assert laid.slots.tolist() == [4, 0, 0]
    assert (laid.windows.tokens.data_ptr(), laid.slots.data_ptr()) == there


def test_on_a_cpu_nothing_is_copied():
    numbers = Numbers(4, CPU)
    numbers.writable()[:] = np.arange(4)
    assert numbers.there.tolist() == [0, 1, 2, 3]
    numbers.send()
    assert numbers.there.tolist() == [0, 1, 2, 3]


def test_an_error_while_recording_is_nobodys_secret():
    class Full(Plain):
        def record(self, launch):
            launch()
            raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        target_of(SMALL, recorder=Full(CPU))


def test_a_target_that_nobody_has_goes_at_once():
    """With what it recorded, and not when the collector comes by, which a round is without."""
    gc.disable()
    try:
        target = target_of(SMALL)
        gone = weakref.ref(target._decoder)
        target.step([Row(0, [1])])
        del target
        assert gone() is None
    finally:
        gc.enable()


def test_each_batch_size_is_recorded_when_it_is_first_used(monkeypatch):
    made = []

    def recorder_for(device):
        made.append(Repeating())
        return made[-1]

    monkeypatch.setattr(causal, "recorder_for", recorder_for)
    target = Sized(weights_of(SMALL), taps=TAPS, slots=8, window=WINDOW, context=64)
    for batch in (1, 8, 2, 1):
        target.use(batch)
    assert [one.recorded for one in made] == [2, 2, 2]
    for batch in (8, 1):
        target.use(batch)
        target.prefill(0, [1, 2])
        target.step([Row(0, [3])])
    assert [(one.recorded, one.runs) for one in made] == [(2, 2), (2, 2), (2, 0)]
