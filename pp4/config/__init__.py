"""Settings: what the environment of this process says about pp4.

Nothing else in pp4 reads the environment; the HOLD file is read by :mod:`pp4.config.hold_file`,
which is imported only where a HOLD is asked for.  A value that makes no sense refuses; it is never
replaced by a default, because whoever set it meant something by it.
"""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pp4.errors import Code, Refusal, RefusedError

#: The two switches of the sampled path; pp4 passes neither on to a process that it starts.
SWITCHES = ("DSPARK_SAMPLED_TOP32", "VLLM_DSPARK_SAMPLED_TOP32")

# the path of a source file would end up in the machine code and in its digest
_COMPILED = {"TRITON_DISABLE_LINE_INFO": "1"}

#: What a process gets whose ranks interpret their kernels; one thread each, since two ranks and a
#: coordinator share what cores there are.
INTERPRETED = {
    **_COMPILED,
    "TRITON_INTERPRET": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

#: What a process gets whose ranks run on GPUs.  NVLink multicast stays off: where it fails it
#: takes every GPU of the host with it.
ON_GPUS = {
    **_COMPILED,
    "TRITON_INTERPRET": "0",
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    # both ranks are on this host: nobody else may reach their group, and no name is looked up
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    # every workspace has memory of its own, which ends with its link
    "TORCH_SYMMMEM_IMPLICIT_POOL": "0",
}

_MEDDLERS = (
    "CUDA_LAUNCH_BLOCKING",
    "TRITON_ALWAYS_COMPILE",
    "TRITON_DEBUG",
    "TRITON_KERNEL_DUMP",
    "TRITON_KERNEL_OVERRIDE",
)
_INTERPRETERS = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_SET_TMPDIR = "export TMPDIR=/absolute/path"
_SET_STATE_DIR = "export PP4_STATE_DIR=/absolute/path"
_WHOLE = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
_TRUTH = {"": False, "0": False, "1": True}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one run of the command.

    Attributes:
        debug: ``PP4_DEBUG``: show tracebacks of unexpected errors.
        color: whether a terminal may be coloured; ``NO_COLOR`` and ``TERM=dumb`` turn it off.
        state_dir: ``PP4_STATE_DIR``: journals and records of this user.
        host_dir: ``PP4_HOST_DIR``: fences and GPU locks, the same for every user of a host.
        temp_setting: ``TMPDIR`` as it is set, looked at by :attr:`temp_dir` alone.
    """

    debug: bool
    color: bool
    state_dir: Path
    host_dir: Path
    temp_setting: str = ""

    @property
    def temp_dir(self) -> Path:
        """Where short-lived files go.

        Looked for when it is asked for: checking a receipt needs no directory that takes files.

        Raises:
            RefusedError: ``BAD_SETTING``, no directory takes files, or not the one that is set.
        """
        text = self.temp_setting
        try:
            # tempfile would pass over a directory that does not serve, and take another one.
            if text and not (Path(text).is_dir() and os.access(text, os.W_OK | os.X_OK)):
                raise _bad("TMPDIR", "a directory that takes files", text)
            return Path(tempfile.gettempdir())
        except OSError as error:
            found = error.strerror or str(error)
            raise _bad("TMPDIR", "a directory that takes files", found, _SET_TMPDIR) from error


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings.

    Args:
        environ: the environment to read; that of this process if none is given.

    Raises:
        RefusedError: ``BAD_SETTING`` with the variable's name and what it holds.
    """
    env = os.environ if environ is None else environ
    return Settings(
        debug=_switch(env, "PP4_DEBUG"),
        color=not env.get("NO_COLOR") and env.get("TERM") != "dumb",
        state_dir=_directory(env, "PP4_STATE_DIR") or _default_state_dir(env),
        host_dir=_directory(env, "PP4_HOST_DIR") or Path("/var/lib/pp4"),
        temp_setting=env.get("TMPDIR", ""),
    )


def home_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the home of this user: ``HOME``, or what the account file says.

    Args:
        environ: the environment to read; that of this process if none is given.

    Raises:
        RefusedError: ``BAD_SETTING``, there is none, or it is not absolute.
    """
    home = _home(os.environ if environ is None else environ)
    if not home.startswith("/"):
        raise _bad("HOME", "an absolute path", home, "export HOME=/absolute/path")
    return Path(home)


def sampled_switch(environ: Mapping[str, str] | None = None) -> bool:
    """Whether ``DSPARK_SAMPLED_TOP32`` asks for the sampled path; to be read once, at the start.

    Args:
        environ: the environment to read; that of this process if none is given.

    Raises:
        RefusedError: ``BAD_SETTING``, it is set to anything but ``0`` or ``1``, also to nothing.
    """
    return _sampled(SWITCHES[0], environ)


def engine_switch(environ: Mapping[str, str] | None = None) -> bool:
    """Whether ``VLLM_DSPARK_SAMPLED_TOP32`` lets an engine ask a worker for sampled drafts.

    Where it is off, requests above temperature 0 ask for greedy drafts.  It says nothing about
    what a worker does: that one has a switch of its own.

    Args:
        environ: the environment to read; that of this process if none is given.

    Raises:
        RefusedError: ``BAD_SETTING``, as for :func:`sampled_switch`.
    """
    return _sampled(SWITCHES[1], environ)


def _sampled(name: str, environ: Mapping[str, str] | None) -> bool:
    text = (os.environ if environ is None else environ).get(name)
    if text not in (None, "0", "1"):
        raise _bad(name, "0, 1 or unset", text or "")
    return text == "1"


@dataclass(frozen=True, slots=True)
class Service:
    """What a service manager has said to this process.

    Attributes:
        socket: ``NOTIFY_SOCKET``, where it listens; None where nobody does.
        watchdog_s: seconds within which it wants to hear of this process, None where it does not.
    """

    socket: str | None = None
    watchdog_s: float | None = None


def service(environ: Mapping[str, str] | None = None) -> Service:
    """Read what a service manager has said; what makes no sense counts as not said.

    Args:
        environ: the environment to read; that of this process if none is given.
    """
    env = os.environ if environ is None else environ
    span, meant = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    mine = meant in ("", str(os.getpid()))
    watched = mine and _WHOLE.fullmatch(span) is not None
    return Service(env.get("NOTIFY_SOCKET") or None, int(span) / 1e6 if watched else None)


def visible_gpus(environ: Mapping[str, str] | None = None) -> tuple[str, ...] | None:
    """Entries of ``CUDA_VISIBLE_DEVICES``, None where it is not set.

    Args:
        environ: the environment to read; that of this process if none is given.
    """
    text = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    return None if text is None else tuple(one.strip() for one in text.split(",") if one.strip())


def child_environment(
    changes: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment for a process that pp4 starts.

    Both switches of the sampled path are taken out first: a person's shell must not be able to
    turn the path on inside a run that is meant to have it off.  So are settings of a debugging
    session that make other kernels of the same sources.

    Args:
        changes: what the process gets on top; the only way to set a switch.
        environ: the environment to start from; that of this process if none is given.
    """
    env = os.environ if environ is None else environ
    kept = {name: text for name, text in env.items() if name not in (*SWITCHES, *_MEDDLERS)}
    return kept | dict(changes)


def outside_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a program of the host, which is no part of pp4.

    What pp4's own interpreters are started with is taken out: a service that runs on after a HOLD
    must not look for its modules in a source that was brought for it.

    Args:
        environ: the environment to start from; that of this process if none is given.
    """
    kept = child_environment({}, environ)
    return {name: text for name, text in kept.items() if name not in _INTERPRETERS}


def _switch(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "")
    if text not in _TRUTH:
        raise _bad(name, "0 or 1", text)
    return _TRUTH[text]


def _directory(env: Mapping[str, str], name: str) -> Path | None:
    text = env.get(name, "")
    if not text:
        return None
    path = Path(text)
    # Relative would mean another directory for each working directory: two state directories
    # instead of one, and locks that exclude nobody.
    if not path.is_absolute():
        raise _bad(name, "an absolute path", text)
    try:
        other = path.exists() and not path.is_dir()
    except OSError as error:
        # A name that is too long, a parent that may not be entered.
        raise _bad(name, "a directory", f"{text}: {error.strerror or error}") from error
    if other:
        raise _bad(name, "a directory", f"{text}, which is something else")
    return path


def _default_state_dir(env: Mapping[str, str]) -> Path:
    # The base directory rules ask to ignore a relative XDG_STATE_HOME.
    base = env.get("XDG_STATE_HOME", "")
    if base.startswith("/"):
        return Path(base) / "pp4"
    home = _home(env)
    if not home.startswith("/"):
        again = "" if home else _SET_STATE_DIR
        raise _bad("HOME", "an absolute path (or PP4_STATE_DIR)", home, again)
    return Path(home) / ".local" / "state" / "pp4"


def _home(env: Mapping[str, str]) -> str:
    return env.get("HOME") or _account_home()


def _account_home() -> str:
    # Services and containers often run without HOME, or as a user that no account file names.
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def _bad(name: str, expected: str, found: str, again: str = "") -> RefusedError:
    return RefusedError(
        Refusal(
            code=Code.BAD_SETTING,
            where=f"environment variable {name}",
            expected=expected,
            found=repr(found) if found else "nothing",
            next=again or f"unset {name}",
        )
    )
