"""What a clean block has to be stamped with, counted on the host."""

from hypothesis import given
from hypothesis import strategies as st

from pp4.worker.epochs import Epochs

BLOCKS = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=3, max_size=3), st.integers(1, 5)), max_size=12
)


def test_an_active_row_takes_the_epochs_that_follow_and_a_padded_one_keeps_its_last():
    epochs = Epochs(7, 3)
    assert epochs.expected([1, 0, 2], 2) == ((8, 9), (7, 7), (8, 9))
    epochs.advance([1, 0, 2], 2)
    assert epochs.expected([1, 1, 0], 2) == ((10, 11), (8, 9), (9, 9))


@given(BLOCKS)
def test_no_row_is_ever_stamped_twice_with_one_epoch(blocks):
    epochs, seen = Epochs(100, 3), [[] for _ in range(3)]
    for modes, n_out in blocks:
        for row, stamps in enumerate(epochs.expected(modes, n_out)):
            seen[row] += stamps if modes[row] else ()
        epochs.advance(modes, n_out)
    for stamps in seen:
        assert stamps == list(range(101, 101 + len(stamps)))
    assert epochs.furthest == max(len(stamps) for stamps in seen)
