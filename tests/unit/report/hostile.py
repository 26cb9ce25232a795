"""A half whose free texts were chosen by somebody who means harm."""

from pp4.receipts.digests import tree_digest
from tests.unit.report.measured import changed, made

HOSTILE = (
    "evil</text></svg><script>hurt=1</script><img src=x onerror=hurt=1>\"'&amp;"
    "$\\frac{1}{2}$ \u202egnp.exe \x1b[31m \u6f22 {{ 7*7 }} url(http://example.com/x) "
    + "long"
    * 20
)


def hostile_half() -> bytes:
    """The first half alone, its texts replaced wherever the schema has room for any."""

    def change(body):
        body["hold"]["id"] = HOSTILE
        body["limits"] = [HOSTILE]
        body["settings"][HOSTILE] = HOSTILE
        body["tool"]["version"] = HOSTILE
        for gpu in body["gpus"]:
            gpu["name"] = gpu["driver"] = HOSTILE
        for span in body["timeline"]:
            span["name"] = HOSTILE
        for arm in body["arms"]:
            for snapshot in arm["snapshots"]:
                snapshot["unsupported"] = {"torch.reserved": HOSTILE}
            for row in arm["rounds"]:
                row["facts"] = {
                    "gpu.0.sm_mhz": 1980,
                    f"gpu.0.{HOSTILE}": 7,
                    "gpu.0.slowed_by": HOSTILE,
                    HOSTILE: HOSTILE,
                }
        for arm in body["arms"]:
            arm["baseline_sha256"] = tree_digest(arm["snapshots"][0])

    return changed(made().files["A1B1"], change)
