"""The service that launch/ has an example of; what sets switches is in test_switches.py."""

import configparser
from pathlib import Path

from pp4.config import SWITCHES

SERVICE = Path(__file__).parents[3] / "launch" / "pp4-worker.service"


def test_the_service_is_one_that_systemd_understands():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(SERVICE.read_text("utf-8"))
    service = unit["Service"]
    assert (service["Type"], service["Restart"]) == ("notify", "on-failure")
    assert "pp4 worker serve" in service["ExecStart"]
    # a machine that refuses is not tried again and again
    assert "3" in service["RestartPreventExitStatus"].split()
    assert not any(switch in SERVICE.read_text("utf-8") for switch in SWITCHES)
