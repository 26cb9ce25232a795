"""Write the published JSON schemas: ``python -m pp4.receipts.publish schemas``."""

from __future__ import annotations

import sys
from pathlib import Path

from pp4.receipts.models import schemas


def publish(directory: Path) -> tuple[Path, ...]:
    """Write one schema per kind into an existing directory, over older ones.

    Args:
        directory: where ``KIND.schema.json`` goes.

    Returns:
        the files written.

    Raises:
        OSError: a file cannot be written.
    """
    written = []
    for kind, content in schemas().items():
        path = directory / f"{kind}.schema.json"
        path.write_bytes(content)
        written.append(path)
    return tuple(written)


if __name__ == "__main__":
    publish(Path(sys.argv[1]))
