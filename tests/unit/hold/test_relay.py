"""A relay is started for every connection."""

from tests.unit.processes import printed


def test_what_it_loads_is_light():
    heavy = {"paramiko", "typer", "rich", "torch", "pp4.receipts.models", "pp4.hold.supervisor"}
    loaded = printed("import sys, pp4.hold.relay\nprint(*sys.modules)")
    assert "pp4.wire.holds" in loaded
    assert heavy & set(loaded) == set()
