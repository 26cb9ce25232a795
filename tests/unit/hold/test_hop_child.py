"""What a refusal of the far host proves, as the near books have it."""

import contextlib

import pytest

from pp4.errors import Code, Refusal, RefusedError
from pp4.hold import hop


class Book:
    """Keeps what is written down."""

    def __init__(self):
        self.said = []

    def say_asked(self):
        self.said.append("asked")

    def say_ended(self, ended):
        self.said.append(ended.how)


class Place:
    """A far host that is not asked."""

    host = program = None


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (Code.QUARANTINED, ["asked", "refused"]),
        (Code.STALE_FENCE, ["asked", "refused"]),
        # there is a child: this very refusal says so
        (Code.EXISTS, ["asked"]),
        (Code.UNWRITABLE, ["asked"]),
        (Code.HOST_KEY, ["asked"]),
    ],
)
def test_only_a_refusal_after_which_there_is_no_child_is_proof(monkeypatch, code, said):
    @contextlib.contextmanager
    def refused(*_):
        raise RefusedError(Refusal(code, "far host", "a child", "none"))
        yield

    monkeypatch.setattr(hop, "open_window", refused)
    book = Book()
    with pytest.raises(RefusedError), hop._child(Place, book, None, None):
        pass
    assert book.said == said
