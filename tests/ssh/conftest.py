"""Servers that a test asks for; all of them are gone when it ends."""

import pytest

from tests.ssh.further import Further
from tests.ssh.servers import MISSING, Agent, Sshd


@pytest.fixture
def start_sshd(tmp_path):
    """A function that starts one more server: ``start_sshd(name, **what is different)``."""
    if MISSING:
        pytest.skip("needs sshd and ssh-keygen (openssh-server)")
    started = []

    def start(name="sshd", **different):
        started.append(Sshd(tmp_path / name, **different))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def sshd(start_sshd):
    """A server that lets one key in."""
    return start_sshd()


@pytest.fixture
def start_agent(tmp_path):
    """A function that starts an ssh-agent with keys."""
    started = []

    def start(keys):
        started.append(Agent(tmp_path, keys))
        return started[-1]

    yield start
    for agent in started:
        agent.stop()


@pytest.fixture
def near(tmp_path):
    """Where the near host keeps its things."""
    place = tmp_path / "near"
    place.mkdir()
    return place


@pytest.fixture
def far(start_sshd, tmp_path):
    """A further host."""
    return Further(start_sshd("far"), tmp_path / "further")
