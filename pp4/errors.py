"""One family of errors, one shape of refusal, one list of codes.

Every error that a user can meet is a :class:`Pp4Error` that carries a :class:`Refusal`: what was
expected, what was found, what was left behind and the one next command.  The class decides the
exit code.  This module imports nothing of pp4, so every layer may use it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import IntEnum, StrEnum
from typing import ClassVar


class Exit(IntEnum):
    """Exit codes, the same for all commands."""

    DONE = 0
    WRONG = 1
    USAGE = 2
    REFUSED = 3
    INCONCLUSIVE = 4
    TIMEOUT = 5
    UNCLEAN = 6
    INTERRUPTED = 130
    TERMINATED = 143


class Code(StrEnum):
    """Every code that a refusal, a gate or an arm can carry; each has a page in ``pp4 explain``."""

    # the command line and the machine
    USAGE = "USAGE"
    BAD_SETTING = "BAD_SETTING"
    UNREADABLE = "UNREADABLE"
    UNWRITABLE = "UNWRITABLE"
    EXISTS = "EXISTS"
    MISSING_PACKAGE = "MISSING_PACKAGE"
    NO_GPU_PAIR = "NO_GPU_PAIR"
    INTERRUPTED = "INTERRUPTED"
    INTERNAL = "INTERNAL"

    # receipts: bytes, schema, digests, evidence
    TOO_LARGE = "TOO_LARGE"
    TOO_DEEP = "TOO_DEEP"
    NOT_UTF8 = "NOT_UTF8"
    NOT_JSON = "NOT_JSON"
    DUPLICATE_KEY = "DUPLICATE_KEY"
    NOT_FINITE = "NOT_FINITE"
    NUMBER_RANGE = "NUMBER_RANGE"
    NOT_CANONICAL = "NOT_CANONICAL"
    UNKNOWN_KIND = "UNKNOWN_KIND"
    UNKNOWN_VERSION = "UNKNOWN_VERSION"
    SCHEMA = "SCHEMA"
    DIGEST_MISMATCH = "DIGEST_MISMATCH"
    JOURNAL_CHAIN = "JOURNAL_CHAIN"
    PLAN_MISMATCH = "PLAN_MISMATCH"
    CROSS_CHECK = "CROSS_CHECK"
    WRONG_KIND = "WRONG_KIND"
    WRONG_ROLE = "WRONG_ROLE"
    EVIDENCE_MISSING = "EVIDENCE_MISSING"
    EVIDENCE_MISMATCH = "EVIDENCE_MISMATCH"
    SUBJECT_MISMATCH = "SUBJECT_MISMATCH"
    HISTORICAL = "HISTORICAL"
    TOO_OLD = "TOO_OLD"
    NOT_PROVEN = "NOT_PROVEN"
    OVER_BUDGET = "OVER_BUDGET"
    NOT_RESTORED = "NOT_RESTORED"
    SIGNATURE_MISSING = "SIGNATURE_MISSING"
    SIGNATURE_BAD = "SIGNATURE_BAD"
    SIGNATURE_UNVERIFIABLE = "SIGNATURE_UNVERIFIABLE"

    # the words that the kernel writes, in rising precedence
    EMPTY_ROW = "EMPTY_ROW"
    BAD_LOGITS = "BAD_LOGITS"
    PEER_TIMEOUT = "PEER_TIMEOUT"
    PROTOCOL = "PROTOCOL"
    EPOCH_EXHAUSTED = "EPOCH_EXHAUSTED"

    # kernels, heads and priming
    BAD_INPUT = "BAD_INPUT"
    UNSUPPORTED_HEAD_MODE = "UNSUPPORTED_HEAD_MODE"
    MISSING_GRAPH = "MISSING_GRAPH"
    MISSING_SAMPLED_GRAPH = "MISSING_SAMPLED_GRAPH"
    UNPRIMED = "UNPRIMED"
    COMPILED_AFTER_PRIMING = "COMPILED_AFTER_PRIMING"
    LAUNCHED_BEFORE_PRIMED = "LAUNCHED_BEFORE_PRIMED"
    KERNELS_DIFFER = "KERNELS_DIFFER"
    OCCUPANCY = "OCCUPANCY"
    STICKY = "STICKY"

    # drafters
    BAD_CHECKPOINT = "BAD_CHECKPOINT"
    UNSUPPORTED_CHECKPOINT = "UNSUPPORTED_CHECKPOINT"
    CACHE_FULL = "CACHE_FULL"

    # a worker's socket
    PEER_USER = "PEER_USER"
    WORKER_FULL = "WORKER_FULL"
    BAD_PROPOSAL = "BAD_PROPOSAL"
    ABI_MISMATCH = "ABI_MISMATCH"

    # what gates find
    DEVICE_MISMATCH = "DEVICE_MISMATCH"
    LIBRARY_CHANGED = "LIBRARY_CHANGED"
    PATTERN_MISMATCH = "PATTERN_MISMATCH"
    OUTPUT_MISMATCH = "OUTPUT_MISMATCH"
    RANKS_DIFFER = "RANKS_DIFFER"
    INCOMPLETE = "INCOMPLETE"
    PTX_ORDER = "PTX_ORDER"
    MODEL_VIOLATION = "MODEL_VIOLATION"
    T0_NOT_ARGMAX = "T0_NOT_ARGMAX"
    T0_DREW = "T0_DREW"
    NEIGHBOUR_CHANGED = "NEIGHBOUR_CHANGED"
    NOT_ORIGINAL = "NOT_ORIGINAL"
    WRONG_ERROR_WORD = "WRONG_ERROR_WORD"
    WAIT_NOT_BOUNDED = "WAIT_NOT_BOUNDED"
    RELEASED_ON_ONE_WORD = "RELEASED_ON_ONE_WORD"
    RELEASED_AFTER_ERROR = "RELEASED_AFTER_ERROR"
    NOT_TORN_DOWN = "NOT_TORN_DOWN"
    LEAK = "LEAK"
    FAILED_ROUNDS = "FAILED_ROUNDS"
    CONTROL_NOT_CAUGHT = "CONTROL_NOT_CAUGHT"
    GATE_NOT_RUN = "GATE_NOT_RUN"

    # holding GPUs
    HELD_BY = "HELD_BY"
    STALE_FENCE = "STALE_FENCE"
    FENCE_LOST = "FENCE_LOST"
    QUARANTINED = "QUARANTINED"
    EXCLUSION = "EXCLUSION"
    DEADLINE = "DEADLINE"
    NOT_IDLE = "NOT_IDLE"
    UNKNOWN_HOLD = "UNKNOWN_HOLD"
    LEASE_LOST = "LEASE_LOST"

    # another host
    BAD_HOLD_FILE = "BAD_HOLD_FILE"
    UNREACHABLE = "UNREACHABLE"
    HOST_KEY = "HOST_KEY"
    AUTHENTICATION = "AUTHENTICATION"
    CONNECTION_LOST = "CONNECTION_LOST"
    NOT_STAGED = "NOT_STAGED"

    # staging a runner tree
    BAD_MANIFEST = "BAD_MANIFEST"
    BAD_TREE = "BAD_TREE"
    NOT_REVIEWED = "NOT_REVIEWED"
    NOT_ONCE = "NOT_ONCE"
    GUARD_CHANGED = "GUARD_CHANGED"
    SWITCH_SET = "SWITCH_SET"

    # processes and time
    RANK_DIED = "RANK_DIED"
    STEP_TIMEOUT = "STEP_TIMEOUT"
    BAD_FRAME = "BAD_FRAME"
    SURVIVOR = "SURVIVOR"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What pp4 says when it does not go on; the same object under ``--json``.

    Attributes:
        code: the reason, explained by ``pp4 explain CODE``.
        where: the file, gate, option or step that was looked at.
        expected: short text of what was needed.
        found: short text of what was there; ``nothing`` where it is empty.
        source: where the expectation comes from (a page, a receipt, an option).
        host: the machine on which it was seen; ``local`` unless a receiving host spoke.
        left: what was started or left behind; ``nothing`` is a promise.
        next: the one command to run next.
    """

    code: Code
    where: str
    expected: str
    found: str
    source: str = "pp4"
    host: str = "local"
    left: str = "nothing"
    next: str = ""

    def __post_init__(self) -> None:
        if not self.found.strip():
            # an empty argument, say: a line with nothing on it would look like one left out
            object.__setattr__(self, "found", "nothing")

    def as_dict(self) -> dict[str, str]:
        """Return the refusal as plain JSON-ready strings, ``next`` filled in."""
        record = {name: str(value) for name, value in asdict(self).items()}
        record["next"] = self.next or f"pp4 explain {self.code}"
        return record


def reason_of(error: Exception) -> str:
    """What the system says is wrong, in words alone: number and path are for a program."""
    return getattr(error, "strerror", None) or str(error)


class Pp4Error(Exception):
    """Base of every error with a message for a person.

    Args:
        refusal: what to say.
    """

    exit: ClassVar[Exit] = Exit.WRONG

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(
            f"{refusal.code}: {refusal.where}: expected {refusal.expected}, found {refusal.found}"
        )


class WrongError(Pp4Error):
    """A gate or a check failed, or a receipt was tampered with."""

    exit = Exit.WRONG


class UsageError(Pp4Error):
    """The command line asks for something that does not exist."""

    exit = Exit.USAGE


class RefusedError(Pp4Error):
    """Evidence, configuration, kind or file is missing, unreadable or not the right one."""

    exit = Exit.REFUSED


class BadInputError(RefusedError, ValueError):
    """An argument of a library call is out of its domain."""

    @classmethod
    def of(cls, where: str, expected: str, found: str) -> BadInputError:
        """Build the refusal of one argument."""
        return cls(Refusal(Code.BAD_INPUT, where, expected, found))


class InconclusiveError(Pp4Error):
    """The run neither shows that it is right nor that it is wrong."""

    exit = Exit.INCONCLUSIVE


class TimedOutError(Pp4Error):
    """A bounded wait of the host ran out."""

    exit = Exit.TIMEOUT


class UncleanError(Pp4Error):
    """Something that we started may still run."""

    exit = Exit.UNCLEAN
