"""Whether logging out kills what an SSH login has started, a supervisor of a HOLD included."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from pp4.doctor.model import Check, Status
from pp4.doctor.probes import Probes

_NAME = "logind"
_NEEDED_FOR = "a HOLD whose supervisor outlives its SSH login"
_KILLS, _SPARED, _ONLY = "KillUserProcesses", "KillExcludeUsers", "KillOnlyUsers"
_KEYS = (_KILLS, _SPARED, _ONLY)
_LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_YES = {"yes", "true", "on", "1", "y", "t"}
#: There if and only if systemd started this machine, sd_booted(3).
_BOOTED = Path("/run/systemd/system")

Rules = dict[str, str]


def check_logind(probes: Probes) -> Check:
    """Warn where logging out kills what an SSH login has started.

    What counts is what logind itself says over D-Bus; its files only where it does not answer.
    Lingering spares what the user's own service manager has started, and no supervisor is that.
    """
    rules, problem = _asked(probes)
    if rules is None and probes.facts(_BOOTED) is None:
        return Check(_NAME, Status.OK, "no logind", _NEEDED_FOR)
    if rules is None:
        rules = _read(probes)
    user = probes.user_name() or str(probes.user())
    found = ", ".join(f"{key}={rules[key]}" for key in _KEYS if rules.get(key)) or f"no {_KILLS}"
    if problem:
        found = f"{found} in its files ({problem})"
    if not _kills(rules, user):
        return Check(_NAME, Status.OK, found, _NEEDED_FOR)
    todo = (
        f"as the administrator: {_SPARED}={_others(rules)}{user} under [Login] in "
        "/etc/systemd/logind.conf, then 'systemctl reload-or-restart systemd-logind'"
    )
    return Check(_NAME, Status.WARN, f"{found}: kills what {user} has started", _NEEDED_FOR, todo)


def _kills(rules: Rules, user: str) -> bool:
    """Whether a session's end kills what is left of it, as logind.conf(5) says of the three."""
    # nobody named is the default, which spares root
    if user in (rules.get(_SPARED, "").split() or ["root"]):
        return False
    if only := rules.get(_ONLY, "").split():
        return user in only
    return rules.get(_KILLS, "no").lower() in _YES


def _others(rules: Rules) -> str:
    """Who is spared already, to be named together with who is not."""
    return "".join(f"{name} " for name in rules.get(_SPARED, "").split() or ["root"])


def _asked(probes: Probes) -> tuple[Rules | None, str]:
    """Ask logind; -> its rules, None with the reason where it does not answer."""
    program = probes.which("busctl")
    if program is None:
        return None, "no busctl to ask it"
    answer = probes.ask([program, "--system", "get-property", *_LOGIND, *_KEYS])
    if not answer.ok:
        return None, answer.problem
    lines = answer.out.splitlines()
    found = [_value(line) for line in lines]
    if len(lines) != len(_KEYS) or None in found:
        return None, f"an answer that says nothing: {answer.out.strip()[:80]!r}"
    return {key: text for key, text in zip(_KEYS, found, strict=True) if text is not None}, ""


def _value(line: str) -> str | None:
    """A property as busctl prints it: ``b true`` or ``as 2 "a" "b"``; None for anything else."""
    try:
        kind, *words = shlex.split(line)
    except ValueError:
        return None
    if kind == "b" and words in (["true"], ["false"]):
        return "yes" if words == ["true"] else "no"
    if kind == "as" and words[:1] == [str(len(words) - 1)]:
        return " ".join(words[1:])
    return None


def _read(probes: Probes) -> Rules:
    """Read the files of logind."""
    texts = [probes.read(path) or "" for path in _files(probes)]
    # a commented line states the built-in default of the distribution; a later file wins
    return {**_lines(texts, r"#\s*"), **_lines(texts, "")}


def _lines(texts: Sequence[str], start: str) -> Rules:
    pattern = re.compile(rf"^[ \t]*{start}({'|'.join(_KEYS)})[ \t]*=[ \t]*(.*?)[ \t]*$", re.M)
    return {match[1]: match[2] for text in texts for match in pattern.finditer(text)}


def _files(probes: Probes) -> list[Path]:
    roots = [Path("/usr/lib/systemd"), Path("/run/systemd"), Path("/etc/systemd")]
    main = [root / "logind.conf" for root in roots]
    drop_ins = [root / "logind.conf.d" for root in roots]
    # systemd reads drop-ins after the main file, sorted by their names over all directories.
    names = sorted(
        (name, place)
        for place in drop_ins
        for name in probes.names(place)
        if name.endswith(".conf")
    )
    return main + [place / name for name, place in names]
