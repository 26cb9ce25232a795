"""Every fault of a HOLD file is one refusal with its key, whatever the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.config.hold_file import (
    HoldFile,
)
from pp4.config.keys import KEYS
from pp4.errors import Code, RefusedError
from tests.unit.hold_files import (
    DROP,
    ED25519,
    FULL,
    GPUS,
    KNOWN,
    LOCAL,
    OTHER,
    at,
    changed,
    line,
    load,
    refused,
    text_of,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("hold") / "hold.toml"


# dotted key; what stands there instead; part of what is expected; part of what is found
FAULTS = [
    ("hold", DROP, "a table [hold]", "nothing"),
    ("hold", [], "a table [hold]", "a list of 0"),
    ("hold.name", DROP, "a name", "nothing"),
    ("hold.name", "", "not empty", "''"),
    ("hold.name", "-x", "first a letter or digit", "'-x'"),
    ("hold.name", "a/b", "letters, digits", "'a/b'"),
    ("hold.name", "x" * 65, "at most 64", "xxx"),
    ("hold.name", 3, "a name", "3"),
    ("hold.bound_minutes", 0, "from 1 to 90", "0"),
    ("hold.bound_minutes", 91, "from 1 to 90", "91"),
    ("hold.bound_minutes", "90", "from 1 to 90", "'90'"),
    ("hold.bound_minutes", "REAL 90.0", "a whole number", "90.0"),
    ("hold.bound_minutes", True, "from 1 to 90", "true"),
    ("hold.ttl", 1, "from 2 to 300", "1"),
    ("hold.ttl", 301, "from 2 to 300", "301"),
    ("hold.ttl", True, "from 2 to 300", "true"),
    ("hold.ttl", "REAL 0x" + "f" * 9000, "from 2 to 300", "more than 64 bits"),
    ("hold.ttl", "REAL nan", "from 2 to 300", "nan"),
    ("hold.ttl", "REAL 2026-01-01", "from 2 to 300", "a date or time"),
    ("receiving_host", DROP, "a table [receiving_host]", "nothing"),
    ("receiving_host.transport", DROP, '"ssh" or "local"', "nothing"),
    ("receiving_host.transport", "SSH", '"ssh" or "local"', "'SSH'"),
    ("receiving_host.address", DROP, "a host name or an IP address", "nothing"),
    ("receiving_host.address", "operator@host", "user have keys of their own", "operator@host"),
    ("receiving_host.address", "host:22", "port and user have keys", "host:22"),
    ("receiving_host.address", "-oProxyCommand=x", "a host name", "-oProxyCommand=x"),
    ("receiving_host.address", "a b", "a host name", "'a b'"),
    ("receiving_host.address", "a..b", "a host name", "'a..b'"),
    ("receiving_host.address", "1.2.3.400", "a host name", "1.2.3.400"),
    ("receiving_host.address", "fe80::1%a b", "a host name", "fe80"),
    ("receiving_host.address", "h\nx", "one line of printable characters", "'h\\nx'"),
    ("receiving_host.address", "h\0x", "one line of printable characters", "'h\\x00x'"),
    ("receiving_host.port", 0, "from 1 to 65535", "0"),
    ("receiving_host.port", 65536, "from 1 to 65535", "65536"),
    ("receiving_host.user", DROP, "an account", "nothing"),
    ("receiving_host.user", "-l", "an account", "'-l'"),
    ("receiving_host.user", "a b", "without spaces", "'a b'"),
    ("receiving_host.identity_file", DROP, "an absolute path", "nothing"),
    ("receiving_host.identity_file", ".ssh/key", "begins with ~/", "'.ssh/key'"),
    ("receiving_host.identity_file", "~other/key", "begins with ~/", "'~other/key'"),
    ("receiving_host.identity_file", "/k\0", "one line of printable", "'/k\\x00'"),
    ("receiving_host.identity_file", "/" + "x" * 4096, "at most 4096 characters", "..."),
    ("receiving_host.host_key", DROP, "a public key line", "nothing"),
    ("receiving_host.host_key", "", "a public key line", "''"),
    ("receiving_host.host_key", "SHA256:" + "x" * 43, "a fingerprint is too little", "SHA256"),
    ("receiving_host.host_key", "256 SHA256:xx h (ED25519)", "a fingerprint", "SHA256"),
    ("receiving_host.host_key", ":".join(["0a"] * 16), "a fingerprint is too little", "0a:0a"),
    ("receiving_host.host_key", "/etc/ssh/ssh_host_key.pub", "not the name of its file", "/etc"),
    ("receiving_host.host_key", f"host {ED25519}", "without the name of the host", "host ssh"),
    ("receiving_host.host_key", f"{ED25519}\n{OTHER}", "one line", "ssh-ed25519"),
    ("receiving_host.host_key", "ssh-dss AAAA", "its type one of ssh-ed25519", "ssh-dss"),
    ("receiving_host.host_key", "ssh-ed25519", "whole", "base64 of another type"),
    ("receiving_host.host_key", "ssh-ed25519 AA*A", "whole", "not base64"),
    ("receiving_host.host_key", "ssh-ed25519 äää=", "whole", "not base64"),
    ("receiving_host.host_key", ED25519[:-4], "whole", "cut off"),
    ("receiving_host.host_key", ED25519.replace("ssh-ed25519", "ssh-rsa"), "whole", "another type"),
    ("receiving_host.host_key", line("ssh-ed25519", bytes(31)), "whole", "31 bytes of 32"),
    ("receiving_host.host_key", line("ssh-ed25519"), "whole", "1 fields of 2"),
    ("receiving_host.host_key", line("ssh-rsa", b"\1", bytes(8), b"x"), "whole", "4 fields of 3"),
    (
        "receiving_host.host_key",
        line("ecdsa-sha2-nistp256", b"nistp384", b"\4"),
        "whole",
        "another curve",
    ),
    ("receiving_host.agent", "yes", "true or false", "'yes'"),
    ("receiving_host.agent", 1, "true or false", "1"),
    ("receiving_host.jump", "host", "a table [receiving_host.jump]", "'host'"),
    ("receiving_host.jump.host_key", DROP, "a public key line", "nothing"),
    ("receiving_host.jump.identity_file", "key", "begins with ~/", "'key'"),
    ("receiving_host.python", "~/bin/python", "no ~ is expanded", "'~/bin/python'"),
    ("receiving_host.python", "venv/bin/python", "an absolute path", "'venv/bin/python'"),
    ("receiving_host.python", "-c", "the name of a program", "'-c'"),
    ("receiving_host.python", "python3 -u", "the name of a program", "'python3 -u'"),
    ("receiving_host.state_dir", "state", "an absolute path on the receiving host", "'state'"),
    ("receiving_host.state_dir", "~/state", "no ~ is expanded", "'~/state'"),
    ("receiving_host.host_dir", "", "not empty", "''"),
    ("receiving_host.gpus", DROP, "a list of two UUIDs", "nothing"),
    ("receiving_host.gpus", "auto", "for transport", "'auto'"),
    ("receiving_host.gpus", GPUS[0], "a list of two UUIDs", "GPU-"),
    ("receiving_host.gpus", [], "exactly two", "0"),
    ("receiving_host.gpus", GPUS[:1], "exactly two", "1"),
    ("receiving_host.gpus", [*GPUS, GPUS[0].replace("0", "1")], "exactly two", "3"),
    ("receiving_host.gpus", [GPUS[0]] * 2, "two different GPUs", f"{GPUS[0]} twice"),
    ("receiving_host.gpus", [0, 1], "8-4-4-4-12", "0"),
    ("receiving_host.gpus", [GPUS[0].upper(), GPUS[1]], "digits of 0-9, a-f", "ABCDEF"),
    ("receiving_host.gpus", [GPUS[0].removeprefix("GPU-"), GPUS[1]], "GPU- and", "01234567"),
    ("receiving_host.gpus", [GPUS[0] + "\n", GPUS[1]], "GPU- and", "\\n"),
    ("model", 3, "a table [model]", "3"),
    ("model.drafter", DROP, "drafter, target and prompts together", "nothing"),
    ("model.target", DROP, "drafter, target and prompts together", "nothing"),
    ("model.prompts", DROP, "drafter, target and prompts together", "nothing"),
    ("model.prompts", "~/p.jsonl", "no ~ is expanded", "'~/p.jsonl'"),
    ("model.target", "models/t", "an absolute path on the receiving host", "'models/t'"),
    ("model.depth", 3, "from 4 to 5", "3"),
    ("model.batch_sizes", [], "a list of different whole numbers from 1 to 32", "a list of 0"),
    ("model.batch_sizes", 8, "a list", "8"),
    ("model.batch_sizes", [1, 33], "from 1 to 32", "33"),
    ("model.batch_sizes", [1, True], "whole numbers", "true"),
    ("model.batch_sizes", [1, 3, 1], "different", "1 twice"),
    ("model.temperatures", ["0.7"], "numbers from 0 to 2", "'0.7'"),
    ("model.temperatures", ["REAL 2.000001"], "from 0 to 2", "2.000001"),
    ("model.temperatures", [-1], "from 0 to 2", "-1"),
    ("model.temperatures", ["REAL -0.5"], "from 0 to 2", "-0.5"),
    ("model.temperatures", ["REAL nan"], "from 0 to 2", "nan"),
    ("model.temperatures", ["REAL inf"], "from 0 to 2", "inf"),
    ("model.temperatures", ["REAL 1e-99999999999999999999"], "from 0 to 2", "1e-9999"),
    ("model.temperatures", [1, "REAL 1.0"], "different", "1.0 twice"),
    ("hop", {"name": "h"}, "[[hop]] with two brackets", "a table"),
    ("hop", [1], "tables alone, each under [[hop]]", "1 among them"),
    ("quiesce", "systemctl stop x", "[[quiesce]] with two brackets", "'systemctl stop x'"),
    ("restore", DROP, "has to be started again", "nothing"),
    ("restore", [], "has to be started again", "a list of 0"),
    ("evidence", [], "a table [evidence]", "a list of 0"),
    ("evidence.budget", "receipts/b.json", "a table { path, sha256 }", "'receipts/b.json'"),
    ("evidence.budget", [], "a list of such tables", "a list of 0"),
    ("evidence.budget", ["b"], "a list of such tables", "'b' in the list"),
    ("evidence.budget.path", DROP, "the path of a file", "nothing"),
    ("evidence.budget.path", "~other/b.json", "begins with ~/", "'~other/b.json'"),
    ("evidence.budget.sha256", "A" * 64, "64 digits of 0-9 and a-f", "AAAA"),
    ("evidence.budget.sha256", "a" * 63, "64 digits", "aaa"),
]


@pytest.mark.parametrize(("path", "new", "expected", "found"), FAULTS)
def test_a_fault_is_refused_with_its_key(place, path, new, expected, found):
    refusal = refused(place, changed(FULL, path, new))
    assert refusal.where == f"{place}, {path}"
    assert expected in refusal.expected
    assert found in refusal.found
    assert len(refusal.found) < 200


IN_LISTS = [
    ("hop.0.name", "", "hop.name, entry 1", "not empty"),
    ("hop.0.identity_file", "~/key", "hop.identity_file, entry 1", "no ~ is expanded"),
    ("hop.0.host_key", "SHA256:x", "hop.host_key, entry 1", "a fingerprint"),
    ("quiesce.0.argv", "systemctl stop", "quiesce.argv, entry 1", "no shell reads it"),
    ("quiesce.0.argv", [], "quiesce.argv, entry 1", "a list of arguments"),
    ("quiesce.0.argv", [""], "quiesce.argv, entry 1", "not empty"),
    ("quiesce.0.argv", ["a", "b\nc"], "quiesce.argv, entry 1", "one line"),
    ("quiesce.0.argv", ["a", "b\0"], "quiesce.argv, entry 1", "one line"),
    ("quiesce.0.argv", ["a", 1], "quiesce.argv, entry 1", "each text"),
    ("quiesce.0.argv", ["bin/x"], "quiesce.argv, entry 1", "its absolute path"),
    ("quiesce.0.argv", ["systemctl stop x"], "quiesce.argv, entry 1", "the name of a program"),
    ("restore.0.limit", 0, "restore.limit, entry 1", "from 1 to 900"),
    ("restore.0.limit", "REAL 1.5", "restore.limit, entry 1", "from 1 to 900"),
    (
        "evidence.identity_reference.1.sha256",
        "",
        "evidence.identity_reference.sha256, entry 2",
        "not empty",
    ),
]


@pytest.mark.parametrize(("path", "new", "where", "expected"), IN_LISTS)
def test_a_fault_in_a_list_is_refused_with_its_number(place, path, new, where, expected):
    refusal = refused(place, changed(FULL, path, new))
    assert refusal.where == f"{place}, {where}"
    assert expected in refusal.expected


def test_two_hops_of_one_name(place):
    refusal = refused(place, changed(FULL, "hop", FULL["hop"] * 2))
    assert (refusal.where, refusal.found) == (f"{place}, hop.name, entry 2", "'engine' twice")


def test_one_receipt_in_two_roles(place):
    refusal = refused(place, changed(FULL, "evidence.qualification.sha256", "a" * 64))
    assert refusal.found == f"{'a' * 64} twice"


def test_commands_that_cannot_end_within_the_bound(place):
    tree = changed(FULL, "hold.bound_minutes", 2)
    refusal = refused(place, changed(tree, "restore.0.limit", 90))
    assert ("below the bound of 120 s" in refusal.expected, refusal.found) == (True, "120 s")
    assert load(place, changed(tree, "restore.0.limit", 89)).restore[0].limit_s == 89


@pytest.mark.parametrize(
    "key", ["address", "port", "user", "identity_file", "host_key", "agent", "jump"]
)
def test_this_machine_is_not_reached_over_ssh(place, key):
    tree = changed(LOCAL, f"receiving_host.{key}", FULL["receiving_host"][key])
    refusal = refused(place, tree)
    assert refusal.where == f"{place}, receiving_host.{key}"
    assert "this machine" in refusal.expected


TEXTS = [
    "hold.name",
    "receiving_host.transport",
    *(f"receiving_host.{key}" for key in ("address", "user", "identity_file", "host_key", "gpus")),
    "receiving_host.state_dir",
    "receiving_host.gpus.0",
    "receiving_host.jump.host_key",
    "model.drafter",
    "hop.0.identity_file",
    "quiesce.0.argv",
    "quiesce.0.argv.1",
    "evidence.budget.path",
    "evidence.budget.sha256",
]


@pytest.mark.parametrize("path", TEXTS)
def test_a_private_key_is_never_shown(place, path):
    pasted = "-----BEGIN OPENSSH PRIVATE KEY-----\nTHESECRET\n-----END OPENSSH PRIVATE KEY-----\n"
    with pytest.raises(RefusedError) as caught:
        load(place, changed(FULL, path, pasted))
    assert "THESECRET" not in f"{caught.value} {caught.value.refusal.as_dict()}"
    assert "private key (not shown)" in caught.value.refusal.found


@pytest.mark.parametrize(("kind", "key"), KNOWN)
def test_the_nearest_key_is_named(place, kind, key):
    wrong = key.replace("_", "-") + "x"
    refusal = refused(place, changed(FULL, at(kind, wrong), "anything"))
    assert refusal.found == f"the unknown key '{wrong}'"
    assert refusal.expected == f"a known key; the nearest is {key}"
    assert f".{wrong}" in refusal.where.replace(", ", ".")


def test_a_key_of_another_table_is_told_where_it_belongs(place):
    refusal = refused(place, changed(FULL, "receiving_host.jump.gpus", GPUS))
    assert refusal.expected.endswith("gpus is a key of [receiving_host]")
    refusal = refused(place, changed(FULL, "hold.zzzzzz", 1))
    assert refusal.expected == "one of name, bound_minutes, ttl"
    refusal = refused(place, changed(FULL, "evidence.rehearsal", {}))
    assert refusal.expected.startswith("one of budget, first_half, identity_reference")


@pytest.mark.parametrize(
    ("raw", "where", "expected", "found"),
    [
        (b"", ", hold", "a table [hold]", "nothing"),
        (b"[hold]\nname = x\n", ", line 2, column 8", "in TOML", "Invalid value"),
        (b'[hold]\nname = "x', ", end of document", "in TOML", "Unterminated string"),
        (b"a = 1\na = 2\n", ", line 2, column 6", "in TOML", "Cannot overwrite"),
        (b"{}", ", line 1, column 1", "in TOML", "Invalid statement"),
        (b"# \xff\n", "", "in UTF-8", "byte 0xff at offset 2"),
        (b"a = " + b"[" * 100_000, "", "in TOML", "nesting without end"),
        (b"a = " + b"9" * 5000, "", "in TOML", "4300 digits"),
        (b"\0" * 10, ", line 1, column 1", "in TOML", "Invalid statement"),
        (b"a" + b".a" * 3000 + b" = 1", ", a", "one of hold", "the unknown key 'a'"),
        (b"hold" + b".a" * 3000 + b" = 1", ", hold.a", "name", "the unknown key 'a'"),
        (b"#" * ((1 << 20) + 1), "", "at most 1048576 bytes", "1048577 bytes"),
    ],
)
def test_no_toml(place, raw, where, expected, found):
    refusal = refused(place, raw)
    assert refusal.where == f"{place}{where}"
    assert expected in refusal.expected
    assert found in refusal.found


def outcome(place, raw):
    """A HOLD file, or the refusal; anything else that is raised fails the test."""
    try:
        return load(place, raw)
    except RefusedError as error:
        refusal = error.refusal
    assert refusal.code is Code.BAD_HOLD_FILE
    assert refusal.where.startswith(str(place))
    texts = [refusal.where.removeprefix(str(place)), refusal.expected, refusal.found]
    assert all(text.isprintable() and len(text) < 300 for text in texts)
    return refusal


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(place, raw):
    assert not isinstance(outcome(place, raw), HoldFile)


SCRAPS = [b'"', b"'", b"[", b"]]", b"{", b"}", b"\n", b"=", b"#", b".", b"\\u0000", b"\xc3", b"0x"]


@given(st.data())
def test_a_damaged_file_is_read_or_refused(place, data):
    raw = text_of(FULL).encode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(raw)))
        gone = data.draw(st.integers(0, 40))
        put = data.draw(st.sampled_from(SCRAPS) | st.binary(max_size=5))
        raw = raw[:start] + put + raw[start + gone :]
    outcome(place, raw)


TREES = st.recursive(
    st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(["auto", "ssh", "local", "REAL 0.5", "REAL nan", "REAL 12:00:00"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([key for keys in KEYS.values() for key in keys]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@given(st.sampled_from(KNOWN), TREES)
def test_any_value_under_any_key_is_read_or_refused(place, known, new):
    outcome(place, changed(FULL, at(*known), new))


@pytest.mark.parametrize(("kind", "key"), KNOWN)
def test_what_no_key_takes_is_refused_at_each(place, kind, key):
    refusal = refused(place, changed(FULL, at(kind, key), "REAL 2026-01-01"))
    entry = ", entry 1" if kind in ("hop", "quiesce", "restore") else ""
    dotted = at(kind, key).replace(".0.", ".")
    assert refusal.where == f"{place}, {dotted}{entry}"
    assert "a date or time" in refusal.found


def misspelled(key):
    """Every way to leave a letter out, to double one, and to swap two."""
    spots = range(len(key))
    wrong = {key[:i] + key[i + 1 :] for i in spots} | {
        key[:i] + key[i:][:1] + key[i:] for i in spots
    }
    wrong |= {key[:i] + key[i + 1 : i + 2] + key[i : i + 1] + key[i + 2 :] for i in spots}
    return st.sampled_from(sorted(wrong - {key}))


def found_at(tree, path):
    for step in path.split("."):
        tree = tree[int(step) if step.isdigit() else step]
    return tree


@given(st.data())
def test_one_changed_key_is_refused_and_named(place, data):
    kind, key = data.draw(st.sampled_from(KNOWN))
    wrong = data.draw(misspelled(key))
    path = at(kind, key)
    parent = path.rpartition(".")[0]
    tree = changed(changed(FULL, path, DROP), f"{parent}.{wrong}".lstrip("."), found_at(FULL, path))
    refusal = refused(place, tree)
    assert refusal.found == f"the unknown key '{wrong}'"
    assert wrong in refusal.where
    assert refusal.expected == f"a known key; the nearest is {key}" or key in refusal.expected
