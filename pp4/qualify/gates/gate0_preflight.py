"""Gate 0: the devices and libraries are what they should be, and a message crosses bit by bit."""

from __future__ import annotations

from pp4.errors import Code, Refusal, WrongError
from pp4.qualify import judge
from pp4.qualify.arms import Facts, Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.gates import looking
from pp4.qualify.session import facts_of
from pp4.run.mapped import shared_objects
from pp4.wire.facts import Identity, Library, Pattern, read

GATE = 0
_FEW_EPOCHS = 2000
"""Enough around a flipped bit."""


def _met(context: Context) -> tuple[Identity, Identity]:
    """Start a pair and note who runs it."""
    identities = context.session.start()
    first = identities[0]
    context.record.versions = {
        "python": first.python,
        "torch": first.torch,
        "triton": first.triton,
    }
    ranks = context.session.both("definition", {})
    context.record.definition = facts_of(ranks[0])["sha256"]
    return identities


def _devices(context: Context, expected: tuple[str, ...]) -> Finding:
    identities = _met(context)
    solo = context.settings.solo
    code = judge.device(identities, expected[0]) if solo else judge.devices(identities, expected)
    return Finding(
        code,
        {
            "expected": expected,
            "found": tuple(identity.device for identity in identities),
            "device_name": identities[0].device_name,
            "peer_access": tuple(identity.peer_access for identity in identities),
        },
    )


def _as_named(context: Context) -> Finding:
    return _devices(context, context.settings.devices)


def _wrong_name(context: Context) -> Finding:
    # the same facts against a HOLD that names the devices the other way round, or another one
    devices = context.settings.devices
    return _devices(context, devices[::-1] if len(devices) > 1 else ("another-device",))


def _pattern(context: Context, epochs: int, flip_at: int) -> tuple[list[list[Pattern]], Facts]:
    """Write patterns both ways; -> what both ranks said of each, and what the receipt keeps."""
    session = context.session
    session.start()
    patient = context.settings.patient
    ways = []
    for writer in (0, 1):
        session.link(context.settings.rows, (patient, patient))
        given = {"writer": writer, "seed": context.settings.seed, "epochs": epochs}
        ranks = session.both("pattern", {**given, "flip_at": flip_at})
        ways.append([read(Pattern, facts_of(rank)) for rank in ranks])
    wrong = tuple(both[1 - writer].mismatches for writer, both in enumerate(ways))
    return ways, {"bytes": 256, "epochs_each_way": epochs, "mismatches": wrong}


def _every_bit(context: Context) -> Finding:
    epochs = context.settings.pattern_epochs
    ways, facts = _pattern(context, epochs, -1)
    codes = [judge.pattern(both, epochs) for both in ways]
    return Finding(next(filter(None, codes), None), facts, repetitions=2 * epochs)


def _one_bit_flipped(context: Context) -> Finding:
    epochs = min(context.settings.pattern_epochs, _FEW_EPOCHS)
    ways, facts = _pattern(context, epochs, epochs // 2)
    return Finding(judge.flipped(ways, epochs), facts, repetitions=2 * epochs)


def fingerprints(context: Context, *, flip: bool) -> tuple[Library, ...]:
    """Digests of the libraries that rank 0 maps once it has run a block; its peer maps the same.

    Raises:
        WrongError: the block before did not go well, so what is mapped may not be all.
    """
    session = context.fresh()
    case = context.case(1, 1, 10)
    wrong = judge.equal(session.block(case), context.expect(case))
    if wrong:
        found = f"a block that ended with {wrong}"
        raise WrongError(Refusal(wrong, "libraries", "a healthy block before", found))
    facts = facts_of(session.one(0, "libraries", {"flip": flip}))
    return tuple(read(Library, library) for library in facts["libraries"])


def _same_libraries(context: Context) -> Finding:
    """What is mapped is hashed, for gate 7 to compare with; both ranks map the very same files."""
    found = fingerprints(context, flip=False)
    context.record.libraries = found
    pids = looking.rank_pids(context.hold)
    ranks = [shared_objects(pid, context.compiled) for pid in pids]
    unlike = context.unlike(libraries={one.name: one.sha256 for one in found})
    code = judge.libraries(found, found) or judge.mapped(ranks)
    return Finding(
        Code.EVIDENCE_MISMATCH if unlike else code,
        {"libraries": len(found), "mapped_by_ranks": tuple(ranks), "unlike_evidence": unlike},
    )


def _changed_byte(context: Context) -> Finding:
    changed = fingerprints(context, flip=True)
    known = set(context.record.libraries)
    names = tuple(library.name for library in changed if library not in known)
    return Finding(judge.one_byte(changed, context.record.libraries), {"changed": names})


def _idle(context: Context) -> Finding:
    """Nobody else is on the GPUs; what they use now is the baseline of gate 7."""
    found = context.gpus()
    context.record.baseline = found
    return Finding(judge.idle(found), looking.facts(found))


def _occupied(context: Context) -> Finding:
    """A process that is none of a pair's takes memory of the first GPU."""
    with context.foreign():
        found = context.gpus()
    return Finding(judge.idle(found), looking.facts(found))


ARMS = (
    must_pass(
        GATE,
        "idle",
        "no process computes on the GPUs and their memory is free, as the driver tells it",
        _idle,
        hardware=True,
    ),
    must_catch(
        GATE,
        "foreign-memory",
        Code.NOT_IDLE,
        "a process outside of the pair takes memory of a GPU",
        _occupied,
        hardware=True,
    ),
    must_pass(
        GATE,
        "devices",
        "both ranks run on the devices that the HOLD names, and each may write the other's memory",
        _as_named,
    ),
    must_catch(
        GATE,
        "wrong-device",
        Code.DEVICE_MISMATCH,
        "the HOLD names the devices the other way round",
        _wrong_name,
    ),
    must_pass(
        GATE,
        "data-pattern",
        "each rank reads what the peer wrote into one slot of its inbox, 256 bytes, both ways",
        _every_bit,
    ),
    must_catch(
        GATE,
        "flipped-bit",
        Code.PATTERN_MISMATCH,
        "one bit of one message is flipped",
        _one_bit_flipped,
    ),
    must_pass(
        GATE,
        "libraries",
        "what both ranks map is hashed, and they map the very same files",
        _same_libraries,
    ),
    must_catch(
        GATE,
        "changed-library-byte",
        Code.LIBRARY_CHANGED,
        "the last byte of one mapped library is changed before it is hashed",
        _changed_byte,
    ),
)
