"""The HOLD file: what is read from it, its evidence, its example and its page."""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from pp4.config import load_settings
from pp4.config.hold_file import (
    Evidence,
    HoldFile,
    Hop,
    HostCommand,
    Login,
    Model,
    ReceivingHost,
    example,
    load_hold_file,
    local_hold_file,
    read_evidence,
)
from pp4.config.keys import KEYS
from pp4.errors import Code, RefusedError
from pp4.receipts.canonical import LIMIT as LARGEST_RECEIPT
from tests.unit.hold_files import (
    ED25519,
    FULL,
    GPUS,
    HOME,
    KNOWN,
    LOCAL,
    OTHER,
    P256,
    RSA,
    SMALL,
    changed,
    load,
    refused,
    text_of,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("hold") / "hold.toml"


def test_every_key_is_read(place):
    file = load(place, FULL)
    assert file == HoldFile(
        name="first-pair",
        bound_s=2700,
        ttl_s=12,
        host=ReceivingHost(
            transport="ssh",
            address="host.example",
            port=2222,
            user="operator",
            identity_file=Path("/home/u/.ssh/key"),
            host_key=ED25519,
            agent=True,
            jump=Login("10.0.0.1", 22, "guest", Path("/keys/jump"), OTHER),
            python="/opt/py/bin/python",
            state_dir="/srv/state",
            host_dir="/srv/pp4",
            gpus=tuple(GPUS),
        ),
        model=Model(
            "/models/d",
            "/models/t",
            "/models/p.jsonl",
            4,
            (8, 1),
            (Decimal(0), Decimal("0.7"), Decimal(1)),
        ),
        hops=(
            Hop(
                "engine",
                "fe80::1%eth0",
                23,
                "e",
                "/home/e/key",
                P256,
                "python3.12",
                "/e/state",
                "/e/host",
            ),
        ),
        quiesce=(HostCommand(("systemctl", "stop", "a b; c"), 30),),
        restore=(HostCommand(("/bin/systemctl", "start", "$(x)"), 40),),
        evidence=(
            Evidence("budget", place.parent / "receipts/budget.json", "a" * 64),
            Evidence("first_half", Path("/archive/a1b1.json"), "b" * 64),
            Evidence("identity_reference", Path("/home/u/solo.json"), "c" * 64),
            Evidence("identity_reference", place.parent / "worker.json", "d" * 64),
            Evidence("qualification", place.parent / "../pair.json", "e" * 64),
        ),
        sha256=hashlib.sha256(place.read_bytes()).hexdigest(),
    )
    # as a receipt spells them
    assert [str(one) for one in file.model.temperatures] == ["0", "0.7", "1"]
    assert file.host.login == Login(
        "host.example", 2222, "operator", Path("/home/u/.ssh/key"), ED25519
    )
    assert len({file, load(place, FULL)}) == 1


def test_defaults(place):
    file = load(place, SMALL)
    assert (file.bound_s, file.ttl_s, file.model) == (5400, 30, None)
    assert (file.hops, file.quiesce, file.restore, file.evidence) == ((), (), (), ())
    host = file.host
    assert (host.port, host.agent, host.jump, host.python) == (22, False, None, "python3")
    assert (host.state_dir, host.host_dir) == (None, None)
    hop = {key: FULL["hop"][0][key] for key in SMALL["receiving_host"] if key in FULL["hop"][0]}
    more = {"model": {}, "hop": [hop | {"name": "h"}], "restore": [{"argv": ["a"]}]}
    file = load(place, SMALL | more)
    assert file.model == Model(None, None, None, 5, (1, 8, 32), (*map(Decimal, ("0", "0.7", "1")),))
    assert (file.hops[0].port, file.hops[0].python, file.hops[0].state_dir) == (22, "python3", None)
    assert file.restore == (HostCommand(("a",), 60),)


def test_this_machine(place):
    file = load(place, LOCAL)
    host = file.host
    assert (host.transport, host.gpus, host.python) == ("local", "auto", sys.executable)
    assert (host.address, host.user, host.identity_file, host.host_key) == (None,) * 4
    assert host.login is None
    embedded = local_hold_file(load_settings({"PP4_STATE_DIR": "/s", "PP4_HOST_DIR": "/h"}))
    assert embedded.host == replace(host, state_dir="/s", host_dir="/h")
    assert (embedded.quiesce, embedded.restore, embedded.hops, embedded.model) == ((), (), (), None)
    assert (embedded.name, embedded.bound_s, embedded.ttl_s) == ("local", 5400, 30)
    assert re.fullmatch("[0-9a-f]{64}", embedded.sha256)
    named = load(place, changed(LOCAL, "receiving_host.gpus", GPUS))
    assert named.host.gpus == tuple(GPUS)


def test_a_byte_order_mark_and_windows_lines_say_nothing(place):
    raw = b"\xef\xbb\xbf" + text_of(SMALL).encode().replace(b"\n", b"\r\n")
    assert load(place, raw).host == load(place, SMALL).host


@pytest.mark.parametrize("key", [ED25519, OTHER, P256, RSA])
def test_host_keys(place, key):
    assert load(place, changed(SMALL, "receiving_host.host_key", key)).host.host_key == key


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")
@pytest.mark.parametrize(
    "kind", [["ed25519"], ["ecdsa", "-b", "256"], ["ecdsa", "-b", "521"], ["rsa", "-b", "2048"]]
)
def test_host_keys_of_openssh(place, tmp_path, kind):
    key = tmp_path / "key"
    made = ["ssh-keygen", "-q", "-N", "", "-C", "a comment", "-f", str(key), "-t", *kind]
    subprocess.run(made, check=True, timeout=60)
    public = key.with_suffix(".pub").read_text().strip()
    file = load(place, changed(SMALL, "receiving_host.host_key", public))
    assert file.host.host_key == " ".join(public.split()[:2])
    refusal = refused(place, changed(SMALL, "receiving_host.host_key", key.read_text()))
    assert "never leave its host" in refusal.expected


def test_no_file(tmp_path):
    pipe, loop = tmp_path / "pipe", tmp_path / "loop"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    missing = tmp_path / "missing.toml"
    for path, found in [
        (missing, "No such file"),
        (tmp_path, "a directory"),
        (pipe, "a named pipe"),
        (loop, "symbolic links"),
        (Path("a\0b"), "null"),
        (tmp_path / ("x" * 300), "too long"),
    ]:
        with pytest.raises(RefusedError) as caught:
            load_hold_file(path)
        refusal = caught.value.refusal
        assert (refusal.code, refusal.next) == (Code.BAD_HOLD_FILE, "pp4 hold new FILE")
        assert found in refusal.found


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(place):
    place.write_text("")
    place.chmod(0)
    try:
        with pytest.raises(RefusedError) as caught:
            load_hold_file(place)
    finally:
        place.chmod(0o600)
    assert "Permission denied" in caught.value.refusal.found


def test_a_home_that_nobody_knows(place):
    place.write_text(text_of(SMALL))
    with pytest.raises(RefusedError) as caught:
        load_hold_file(place, {"HOME": "not/absolute"})
    assert caught.value.refusal.code is Code.BAD_SETTING
    assert load_hold_file(place, {"HOME": "/h"}).host.identity_file == Path("/h/.ssh/key")


def test_a_relative_file_name_does_not_change_what_it_names(place, monkeypatch):
    place.write_text(text_of(FULL))
    monkeypatch.chdir(place.parent)
    assert load_hold_file(Path(place.name), HOME) == load_hold_file(place, HOME)


def evidence(tmp_path, raw, digest=None):
    receipt = tmp_path / "budget.json"
    if raw is not None:
        receipt.write_bytes(raw)
    table = {"path": receipt.name, "sha256": digest or hashlib.sha256(raw).hexdigest()}
    file = load(tmp_path / "hold.toml", SMALL | {"evidence": {"budget": table}})
    return receipt, file


def test_evidence_is_read_beside_the_file(tmp_path):
    _, file = evidence(tmp_path, b"a receipt")
    assert read_evidence(file) == [("budget", b"a receipt")]
    assert read_evidence(local_hold_file(load_settings())) == []


def test_evidence_in_the_order_of_the_file(tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    rows = [{"path": one, "sha256": hashlib.sha256(one.encode()).hexdigest()} for one in "ba"]
    tree = SMALL | {"evidence": {"identity_reference": rows}}
    found = read_evidence(load(tmp_path / "hold.toml", tree))
    assert found == [("identity_reference", b"b"), ("identity_reference", b"a")]


def test_evidence_that_is_not_there(tmp_path):
    receipt, file = evidence(tmp_path, None, "0" * 64)
    for found in ("No such file", "a directory"):
        with pytest.raises(RefusedError) as caught:
            read_evidence(file)
        refusal = caught.value.refusal
        assert refusal.code is Code.EVIDENCE_MISSING
        assert refusal.where == f"evidence budget, {receipt}"
        assert found in refusal.found
        receipt.mkdir(exist_ok=True)


def test_evidence_that_is_another(tmp_path):
    receipt, file = evidence(tmp_path, b"a receipt")
    receipt.write_bytes(b"a receipt.")
    with pytest.raises(RefusedError) as caught:
        read_evidence(file)
    refusal = caught.value.refusal
    assert refusal.code is Code.EVIDENCE_MISMATCH
    assert hashlib.sha256(b"a receipt").hexdigest() in refusal.expected
    assert hashlib.sha256(b"a receipt.").hexdigest() in refusal.found
    with receipt.open("r+b") as stream:
        stream.truncate(LARGEST_RECEIPT + 1)
    with pytest.raises(RefusedError) as caught:
        read_evidence(file)
    assert caught.value.refusal.code is Code.EVIDENCE_MISMATCH


def test_the_example_is_the_file_of_the_repository():
    assert (ROOT / "launch/hold.example.toml").read_bytes() == example().encode()


def test_the_example_validates_as_it_is(place):
    file = load(place, example().encode())
    # nobody's key and nobody's GPUs
    assert base64.b64decode(file.host.host_key.split()[1])[-32:] == bytes(32)
    assert [set(one[4:]) <= set("01-") for one in file.host.gpus] == [True, True]
    assert file.host.address.endswith(".example")


def test_the_example_validates_with_everything_switched_on(place):
    text = re.sub(r"(?m)^#(?=[^ \n])", "", example())
    file = load(place, text.encode())
    assert file.host.jump is not None
    assert file.model is not None
    assert (len(file.hops), len(file.quiesce), len(file.restore), len(file.evidence)) == (
        1,
        1,
        1,
        5,
    )
    switched_on = set(re.findall(r"(?m)^([a-z0-9_]+) =", text))
    tables = {"hold", "receiving_host", "model", "hop", "quiesce", "restore", "evidence", "jump"}
    assert switched_on | tables | set(KEYS["evidence"]) == {key for _, key in KNOWN}


def test_defaults_in_the_example_are_the_defaults(place):
    as_it_is = load(place, example().encode())
    text = re.sub(r"(?m)^#(?=(bound_minutes|ttl|port|agent) )", "", example().split("#[rec")[0])
    with_defaults = load(place, text.encode())
    assert (with_defaults.bound_s, with_defaults.ttl_s) == (as_it_is.bound_s, as_it_is.ttl_s)
    assert with_defaults.host == as_it_is.host


def test_the_page_has_every_key_and_no_other():
    page = (ROOT / "docs/hold-file.md").read_text("utf-8")
    documented = {}
    for part in page.split("\n## ")[1:]:
        kind = part.splitlines()[0].strip("`[]")
        documented[kind] = tuple(re.findall(r"(?m)^\| `([^`]+)` \|", part))
    assert documented == {kind: keys for kind, keys in KEYS.items() if kind}
