"""Who is not let in, who does not let us in, and what is said about it."""

import base64
import os
import re
import socket
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, RefusedError
from pp4.transport.ssh import SshAddress, SshHost
from pp4.transport.ssh_address import pinned
from tests.ssh.hosts import LONG, SHORT, address_of, after, connect, past, timed_out, within
from tests.ssh.relays import Silent
from tests.ssh.servers import fingerprint, free_port, keygen, needs_sshd, public_line

pytestmark = needs_sshd


def refused(code, where, deadline_s=LONG):
    """Require one refusal within the deadline; -> it."""
    began = time.monotonic()
    with pytest.raises(RefusedError) as caught:
        SshHost(where, after(deadline_s))
    assert time.monotonic() - began < deadline_s + LONG / 4
    assert caught.value.refusal.code is code
    assert caught.value.refusal.where == str(where)
    return caught.value.refusal


@pytest.fixture
def silent():
    """A function that makes a port which says one thing to everybody."""
    made = []

    def start(greeting=b""):
        made.append(Silent(greeting))
        return made[-1]

    yield start
    for port in made:
        port.close()


def test_a_host_shows_what_was_agreed(sshd):
    host = connect(sshd)
    assert host.name == "ssh"
    assert host.address == f"{sshd.user}@127.0.0.1:{sshd.port}"
    assert host.fingerprint == fingerprint(sshd.host_key_files[0])
    assert host.algorithms["host_key"] == "ssh-ed25519"
    assert host.algorithms["server"].startswith("SSH-2.0-OpenSSH")
    assert host.algorithms["strict_key_exchange"] in {"yes", "no"}
    assert all(isinstance(word, str) and word for word in host.algorithms.values())
    assert "cbc" not in host.algorithms["cipher_out"]
    host.close()


def test_the_deadline_had_passed_before(sshd):
    timed_out(SshHost, address_of(sshd), past())


# nobody there


def test_nothing_listens(sshd):
    assert "refused" in refused(Code.UNREACHABLE, address_of(sshd, port=free_port())).found


def test_no_such_name(sshd):
    refused(Code.UNREACHABLE, address_of(sshd, address="no-such-host.invalid"))


def test_no_name_at_all(sshd):
    refused(Code.UNREACHABLE, address_of(sshd, address="a" * 70 + ".invalid"))


def test_connects_but_never_speaks(sshd, silent):
    found = refused(Code.UNREACHABLE, address_of(sshd, port=silent().port), SHORT).found
    assert "no greeting" in found


def test_greets_and_never_speaks_again(sshd, silent):
    port = silent(b"SSH-2.0-OpenSSH_9.9\r\n").port
    refused(Code.UNREACHABLE, address_of(sshd, port=port), SHORT)


@pytest.mark.parametrize(
    "greeting",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 64 + b"\n", b"SSH-1.5-old\r\n", b"SSH-\r\n"],
    ids=["http", "noise", "old", "empty"],
)
def test_is_no_ssh_server(sshd, silent, greeting):
    refused(Code.UNREACHABLE, address_of(sshd, port=silent(greeting).port), 2 * SHORT)


def test_speaks_ssh_and_then_noise(sshd, silent):
    port = silent(b"SSH-2.0-x\r\n" + os.urandom(4096)).port
    refused(Code.UNREACHABLE, address_of(sshd, port=port), 2 * SHORT)


def test_a_full_queue_of_connections(sshd):
    # accepted by nobody: the kernel drops what comes once the queue is full
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        refused(Code.UNREACHABLE, address_of(sshd, port=port), SHORT)
        for one in waiting:
            one.close()


# the wrong host


def test_another_key_of_the_same_kind(sshd, tmp_path):
    other = keygen(tmp_path / "other")
    refusal = refused(Code.HOST_KEY, address_of(sshd, host_key=public_line(other)))
    assert refusal.expected == f"ssh-ed25519 {fingerprint(other)}"
    assert refusal.found == f"ssh-ed25519 {fingerprint(sshd.host_key_files[0])}"
    # nothing of us was shown to a host that is not the one
    assert "publickey" not in sshd.log.read_text()


def test_a_key_of_another_kind(sshd, tmp_path):
    other = keygen(tmp_path / "other", "ecdsa")
    refusal = refused(Code.HOST_KEY, address_of(sshd, host_key=public_line(other)))
    assert refusal.expected == f"ecdsa-sha2-nistp256 {fingerprint(other)}"
    assert refusal.found == f"ssh-ed25519 {fingerprint(sshd.host_key_files[0])}"


@pytest.mark.parametrize("kinds", [("ed25519", "rsa", "ecdsa")])
def test_a_host_with_several_keys_shows_the_one_that_is_pinned(start_sshd, kinds):
    sshd = start_sshd(host_key_kinds=kinds)
    for path, line in zip(sshd.host_key_files, sshd.host_keys, strict=True):
        host = connect(sshd, host_key=line)
        assert host.fingerprint == fingerprint(path)
        host.close()


def test_the_key_of_the_host_changes_between_two_connections(sshd):
    connect(sshd).close()
    where = address_of(sshd)
    before = fingerprint(sshd.host_key_files[0])
    sshd.stop()
    sshd.host_key_files = [keygen(sshd.directory / "changed")]
    sshd.start(sshd.port)
    refusal = refused(Code.HOST_KEY, where)
    assert before in refusal.expected
    assert fingerprint(sshd.host_key_files[0]) in refusal.found


BLOB = "AAAAC3NzaC1lZDI1NTE5AAAAIKp69r6dLi3icLrLYTyaz5cHwZ+3F/D5BtrGuAHydXkU"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "   ",
        BLOB,
        "ssh-ed25519",
        "ssh-ed25519 !!!!",
        f"ssh-ed25519 {BLOB[:-4]}",
        f"ssh-ed25519 {BLOB}AAAA",
        f"ssh-rsa {BLOB}",
        f"ssh-dss {BLOB}",
        f"ssh-ed25519-cert-v01@openssh.com {BLOB}",
        "SHA256:8hruSqxcGbXO6tLctni6V/DAiR71Va/2WSWrK4encqQ",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret",
    ],
)
def test_a_host_key_that_is_none(tmp_path, line):
    # nothing is asked of the network: the address does not exist
    where = SshAddress("host.invalid", 22, "me", tmp_path / "none", line)
    refusal = refused(Code.HOST_KEY, where)
    assert "secret" not in refusal.found
    assert "public key" in refusal.expected


@given(st.sampled_from(["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256"]), st.binary(max_size=120))
def test_no_bytes_as_a_host_key_end_in_anything_but_a_refusal(kind, blob):
    framed = len(kind).to_bytes(4, "big") + kind.encode() + blob
    for data in (blob, framed):
        line = f"{kind} {base64.b64encode(data).decode()}"
        try:
            found = pinned(SshAddress("h", 22, "me", Path("none"), line)).blob
        except RefusedError as error:
            found = error.refusal.code
        assert found in {data, Code.HOST_KEY}


# not let in


def test_a_key_that_the_host_does_not_know(sshd, tmp_path):
    other = keygen(tmp_path / "other")
    refusal = refused(Code.AUTHENTICATION, address_of(sshd, identity_file=other))
    assert str(other) in refusal.expected
    assert "refused it" in refusal.found


def test_a_host_that_hangs_up_after_one_wrong_key(start_sshd, tmp_path):
    sshd = start_sshd(extra="MaxAuthTries 1")
    other = keygen(tmp_path / "other")
    refused(Code.AUTHENTICATION, address_of(sshd, identity_file=other))


def test_a_user_that_does_not_exist(sshd):
    refused(Code.AUTHENTICATION, address_of(sshd, user="nobody-of-that-name"))


def test_a_host_that_takes_passwords_only(start_sshd):
    sshd = start_sshd(extra="PubkeyAuthentication no\nPasswordAuthentication yes")
    refusal = refused(Code.AUTHENTICATION, address_of(sshd))
    assert refusal.found == "it takes no keys, only: password"
    assert "Failed password" not in sshd.log.read_text()


def test_a_host_that_wants_a_password_as_well(start_sshd):
    sshd = start_sshd(extra="AuthenticationMethods publickey,password\nPasswordAuthentication yes")
    refusal = refused(Code.AUTHENTICATION, address_of(sshd))
    assert refusal.found == "it also asks for: password"


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_every_kind_of_key_opens(sshd, tmp_path, kind):
    key = keygen(tmp_path / kind, kind)
    (sshd.directory / "authorized_keys").write_text(public_line(key) + "\n")
    connect(sshd, identity_file=key).close()


def test_an_identity_file_that_is_missing(sshd, tmp_path):
    refusal = refused(Code.AUTHENTICATION, address_of(sshd, identity_file=tmp_path / "none"))
    assert "No such file" in refusal.found


def test_an_identity_file_that_is_no_file(sshd, tmp_path):
    refused(Code.AUTHENTICATION, address_of(sshd, identity_file=tmp_path))
    os.mkfifo(tmp_path / "pipe")
    refusal = refused(Code.AUTHENTICATION, address_of(sshd, identity_file=tmp_path / "pipe"))
    assert "no regular file" in refusal.found


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_an_identity_file_that_may_not_be_read(sshd):
    sshd.identity_file.chmod(0)
    refused(Code.AUTHENTICATION, address_of(sshd))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o622])
def test_an_identity_file_that_others_can_read(sshd, mode):
    sshd.identity_file.chmod(mode)
    refusal = refused(Code.AUTHENTICATION, address_of(sshd))
    assert f"mode {mode:04o}" in refusal.found
    assert refusal.next == f"chmod 600 {sshd.identity_file}"
    assert "publickey" not in sshd.log.read_text()


@pytest.mark.parametrize(("kind", "form"), [("ed25519", "RFC4716"), ("rsa", "PEM")])
def test_an_identity_file_with_a_passphrase(sshd, tmp_path, kind, form):
    key = keygen(tmp_path / "locked", kind, passphrase="correct horse", form=form)
    refusal = refused(Code.AUTHENTICATION, address_of(sshd, identity_file=key))
    assert "passphrase" in refusal.found
    assert "agent" in refusal.next


@pytest.mark.parametrize("content", [b"", b"nonsense", bytes(range(256)), b"public", b"pkcs8"])
def test_an_identity_file_that_holds_no_private_key(sshd, tmp_path, content):
    path = tmp_path / "file"
    if content == b"public":
        content = Path(f"{sshd.identity_file}.pub").read_bytes()
    elif content == b"pkcs8":
        content = keygen(tmp_path / "pkcs8", "rsa", form="PKCS8").read_bytes()
    path.write_bytes(content)
    path.chmod(0o600)
    refusal = refused(Code.AUTHENTICATION, address_of(sshd, identity_file=path))
    assert str(path) in refusal.found


def test_nothing_of_a_private_key_gets_into_a_message(sshd, tmp_path):
    lines = sshd.identity_file.read_text().splitlines()
    secret = lines[2]
    path = tmp_path / "damaged"
    path.write_text("\n".join([*lines[:2], secret, *lines[4:]]))
    path.chmod(0o600)
    refusal = refused(Code.AUTHENTICATION, address_of(sshd, identity_file=path))
    assert secret[:20] not in str(refusal.as_dict())


def test_nothing_is_left_of_an_attempt_that_was_refused(sshd, tmp_path, silent):
    other = keygen(tmp_path / "other")
    deaf = silent().port

    def left():
        names = [
            thread for thread in threading.enumerate() if thread is not threading.main_thread()
        ]
        return len(os.listdir("/proc/self/fd")), len(names)

    before = left()
    refused(Code.HOST_KEY, address_of(sshd, host_key=public_line(other)))
    assert within(lambda: left() == before)
    refused(Code.AUTHENTICATION, address_of(sshd, identity_file=other))
    assert within(lambda: left() == before)
    refused(Code.UNREACHABLE, address_of(sshd, port=deaf), SHORT)
    # the thread that was given up ends as soon as its connection does; the deaf port has its end
    assert within(lambda: left() == (before[0] + 1, before[1]))


# agents

OFFERED = re.compile(r"(?:Failed|Accepted) publickey for \S+ .*?(SHA256:\S+)")


@pytest.fixture
def full_agent(start_agent, tmp_path, monkeypatch):
    """An agent with eight keys, which every client would try one by one."""
    keys = [keygen(tmp_path / f"agent_{number}") for number in range(8)]
    agent = start_agent(keys)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent.socket))
    return keys


def test_keys_of_an_agent_are_not_offered(start_sshd, full_agent):
    sshd = start_sshd(extra="LogLevel VERBOSE")
    connect(sshd).close()
    assert set(OFFERED.findall(sshd.log.read_text())) == {fingerprint(sshd.identity_file)}
    # not either where ours is refused
    refused(Code.AUTHENTICATION, address_of(sshd, identity_file=_stranger(sshd)))
    log = sshd.log.read_text()
    assert not any(fingerprint(key) in log for key in full_agent)


def _stranger(sshd):
    return keygen(sshd.directory / "stranger")


def test_a_key_of_the_agent_is_the_only_one_that_is_offered(start_sshd, full_agent):
    sshd = start_sshd(extra="LogLevel VERBOSE\nMaxAuthTries 1")
    chosen = full_agent[6]
    (sshd.directory / "authorized_keys").write_text(public_line(chosen) + "\n")
    # the private half is only in the agent
    chosen.unlink()
    host = connect(sshd, identity_file=chosen, agent=True)
    stream = host.run(["echo", "in"], after(LONG))
    assert stream.finish(after(LONG)) == 0
    host.close()
    assert set(OFFERED.findall(sshd.log.read_text())) == {fingerprint(chosen)}
    connect(sshd, identity_file=Path(f"{chosen}.pub"), agent=True).close()


def test_an_agent_without_the_key(sshd, full_agent):
    refusal = refused(Code.AUTHENTICATION, address_of(sshd, agent=True))
    assert refusal.found == "8 other keys, or no agent"


def test_no_agent(sshd, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    refusal = refused(Code.AUTHENTICATION, address_of(sshd, agent=True))
    assert refusal.found == "0 other keys, or no agent"


def test_an_agent_and_no_public_key(sshd, full_agent, tmp_path):
    where = address_of(sshd, agent=True, identity_file=tmp_path / "none")
    assert "none.pub" in refused(Code.AUTHENTICATION, where).expected
