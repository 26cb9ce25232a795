"""Which checks a changed receipt fails, by name."""

import json

from pp4.receipts.build import seal
from pp4.receipts.verify import verify_bytes
from tests.unit.receipts import samples


def failures(body):
    """Seal a body that need not be sound and return its failed checks."""
    tree = {**json.loads(samples.sample(body["kind"])), **body}
    report = verify_bytes([("r", seal(tree))])
    assert report.files[0].receipt is not None, report.failures
    return {check.name: check for check in report.failures}
