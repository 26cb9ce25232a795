"""What is verified of logits, row by row, whatever the temperatures beside it."""

import pytest
import torch

from pp4.engine.distributions import distributions

INF, NAN = float("inf"), float("nan")
LOGITS = torch.tensor(
    [
        [[1.0, 3.0, 2.0], [5.0, 5.0, -INF]],
        [[-1e30, -1e30, -1e30], [0.0, 88.0, 88.0]],
        [[NAN, 1.0, 2.0], [-INF, -INF, -INF]],
    ]
)
TINY = 5e-324
WARM = [0.7, 1.0, TINY]


def of(logits, temperatures):
    given = torch.tensor(temperatures, dtype=torch.float64)
    return distributions(logits, temperatures, given)


def equal(found, expected):
    return torch.equal(found.nan_to_num(nan=-1), expected.nan_to_num(nan=-1))


def test_at_zero_all_of_it_is_on_the_first_of_the_largest():
    found = of(LOGITS, [0.0] * 3)
    assert found.dtype == torch.float64
    assert found.tolist() == [
        [[0, 1, 0], [1, 0, 0]],
        [[1, 0, 0], [0, 1, 0]],
        # none that is finite gives no distribution
        [[0, 0, 0], [0, 0, 0]],
    ]


def test_above_zero_it_is_the_softmax():
    found = of(LOGITS[:2], WARM[:2])
    for row, temperature in enumerate(WARM[:2]):
        expected = torch.softmax(LOGITS[row].double() / temperature, dim=-1)
        torch.testing.assert_close(found[row], expected, rtol=1e-12, atol=0)
    # a temperature that everything is infinite by
    assert of(LOGITS[:1], [TINY]).tolist() == [[[0, 1, 0], [0.5, 0.5, 0]]]


@pytest.mark.parametrize("temperatures", [[0.0, 0.7, 0.0], [0.7, 0.0, 1.0], [0.0] * 3, WARM])
def test_a_row_does_not_depend_on_the_temperatures_beside_it(temperatures):
    found = of(LOGITS, temperatures)
    for row, temperature in enumerate(temperatures):
        alone = of(LOGITS[row : row + 1], [temperature])
        assert equal(found[row : row + 1], alone)
