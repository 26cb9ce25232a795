"""Facts of a machine that the sample receipts match, for tests to change one at a time."""

import json

from tests.unit.receipts import samples

NEXT = "GPU-00000000-0000-0000-0000-0000000000ff"


def machine(body=None):
    """Return what the machine of a qualification says about itself, as plain JSON values."""
    body = body or samples.qualification()
    facts = {
        "gpus": [
            {"uuid": uuid, "name": "H200", "driver": "570.1", "vbios": "96.00"}
            for uuid in samples.UUIDS
        ],
        "libraries": body["libraries"],
        "kernels": body["kernels"],
        "boot_id": "boot-1",
    }
    return json.loads(json.dumps(facts))
