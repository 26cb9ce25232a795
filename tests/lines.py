"""Lines of a shell that pp4 tells people to type: read, and parsed by the real command line.

Nothing of them is run: the parser of pp4 goes as far as the call of a command, and no further.
"""

import contextlib
import io
import re
import shlex
from functools import cache
from unittest.mock import patch

import typer
from typer.core import TyperCommand
from typer.main import get_command

from pp4 import cli
from pp4.cli.call import Call
from pp4.config import load_settings
from pp4.console import Console
from pp4.errors import Code

OTHERS = {
    *("cat", "chmod", "chown", "cp", "export", "ls", "mv", "nvidia-smi", "pip", "printf", "ps"),
    *("python", "rm", "ssh", "ssh-add", "unset"),
}
"""Other programs that refusals and pages send people to."""
_AT_ONCE = {"--install-completion", "--show-completion"}
_IN_FRONT = {"sudo", "env"}
_ENDS = {";", "&", "&&", "|", "||", "(", ")"}
_NAME = re.compile(r"pp4( [a-z][a-z-]*)+")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def joined(text):
    """Lines of a block without its blank ones, each with those that it goes on in."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def commands(line):
    """The simple commands of a line, as words; assignments, sudo and env in front are left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    found, one = [], []
    for word in [*lexer, ";"]:
        if word not in _ENDS:
            one.append(word)
        elif one:
            while one and (_ASSIGNED.match(one[0]) or one[0] in _IN_FRONT):
                one = one[1:]
            found += [one] if one else []
            one = []
    return found


def wrong_with(line):
    """What the command line of pp4 has against the commands of a line, empty if nothing."""
    try:
        found = commands(line)
    except ValueError as error:
        return f"{line}: {error}"
    if not found:
        return f"{line}: no command"
    told = [_wrong(tuple(one)) for one in found if one[0] == "pp4"]
    told += [f"{one[0]}: no program that pp4 sends people to" for one in found if _strange(one)]
    return "; ".join(f"{line}: {one}" for one in told if one)


def wrong_with_mention(text):
    """As :func:`wrong_with`, of a command in a sentence, which may be named without arguments."""
    wrong = wrong_with(text)
    return wrong_with(f"{text} --help") if wrong and _NAME.fullmatch(text) else wrong


def _strange(words):
    return words[0] != "pp4" and words[0] not in OTHERS


@cache
def _wrong(words):
    """What is wrong with one command of pp4; a number is meant by NUMBER, as on a page of help."""
    arguments = ["1" if word == "NUMBER" else word for word in words[1:]]
    if arguments and arguments[-1] in _AT_ONCE:
        # these act while they are parsed, on the files of whoever runs the tests
        arguments = arguments[:-1] or ["--help"]
    silent = io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        call = Call(load_settings({}), Console(color=False))
        try:
            with patch.object(TyperCommand, "invoke", _reached):
                _parser().main(arguments, prog_name="pp4", standalone_mode=False, obj=call)
        except typer.TyperException as error:
            return error.format_message()
    if arguments[:1] == ["explain"] and arguments[1:] and not arguments[1].startswith("-"):
        return "" if arguments[1].upper() in set(Code) else f"no code {arguments[1]}"
    return ""


@cache
def _parser():
    return get_command(cli.app)


def _reached(command, context):
    return 0
