"""``python -m pp4``: the same as the ``pp4`` command."""

import sys

from pp4.cli import main

if __name__ == "__main__":
    sys.exit(main())
