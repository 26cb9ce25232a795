"""A worker that nothing has to allow: ``python -m tests.faults.unjudged SETTINGS``.

The product's own, but for the judgement before it starts: what the real kernel does under load is
to be seen also where no pair was qualified, on one GPU.  It serves nobody but tests.
"""

import sys

from pp4.worker import serve
from pp4.worker.permission import Permission


class Unjudged(Permission):
    """Allows whatever the switch asks for."""

    def before_start(self, here):
        """Judge nothing."""


if __name__ == "__main__":
    serve.Permission = Unjudged
    sys.exit(serve.main(sys.argv[1:]))
