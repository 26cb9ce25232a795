"""A client of bad habits, over frames of its own making: every answer has to be the right one."""

import contextlib
import random
import socket
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from pp4.errors import Pp4Error
from pp4.wire.draft_frames import Decoder, encode
from pp4.wire.drafts import (
    ANSWERS,
    Abort,
    Aborted,
    Appended,
    Close,
    Closed,
    Draft,
    Drafted,
    Features,
    Hello,
    Open,
    Opened,
    Refused,
    Welcome,
)

LIMIT_S = 60.0
AT_ONCE = 8
"""Requests that one client has open at once, at most."""
SESSION = 40
"""Requests of one connection, about, where nothing ends it before."""
LEAVES, BAD, ABORTS, CLOSES, IN_ONE_PIECE, LATER = 0.002, 0.02, 0.06, 0.04, 0.8, 0.7
DRAFTS_LAST, CUT = 0.7, 0.4
MOST_WRONG = 10


@dataclass
class Told:
    """What a client has seen.

    Attributes:
        counts: ``asked`` drafts, each either a ``proposal``, ``interrupted`` or ``left`` without an
            answer when the client left; ``dropped`` by an ABORT; ``bad`` questions that were
            refused and ``bad_left``; ``requests`` and ``sessions``.
        wrong: what should not be.
    """

    counts: Counter = field(default_factory=Counter)
    wrong: list = field(default_factory=list)


def differs(body, right):
    """Words in which a body is not one of those that are right, by the nearest of them."""
    mine = np.frombuffer(body, "<u4")
    words = [np.flatnonzero(mine != np.frombuffer(one, "<u4")) for one in right]
    return f"words {min(words, key=len).tolist()} of {len(mine)}"[:100]


class Line:
    """Frames over a Unix socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(LIMIT_S)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self._decoder = Decoder(ANSWERS)

    def receive(self):
        """Wait for bytes; -> the frames that are complete by them, None at the end."""
        data = self.socket.recv(1 << 16)
        return list(self._decoder.feed(data)) if data else None

    def close(self):
        self.socket.close()


@dataclass
class Live:
    """A request that is under way.

    Attributes:
        script: yields questions to be sent in one piece, and is sent their answers.
        waits: sequences whose answers are missing.
        answers: frames in the order in which they came.
        later: a question that is sent when something was heard.
        drafts: sequences of drafts among those that wait.
        bad: sequences of questions that have to be refused among those that wait.
    """

    script: object
    waits: set = field(default_factory=set)
    answers: list = field(default_factory=list)
    later: bytes = b""
    drafts: set = field(default_factory=set)
    bad: set = field(default_factory=set)


class Wrong(Exception):
    """An answer that is not the right one."""


def require(holds, what, *shown):
    if not holds:
        raise Wrong(f"{what}: {shown}"[:600])


class Player:
    """One client: asks random requests, some at once, gives some up, leaves, and comes again.

    Args:
        path: of the socket.
        table: requests by depth, see :func:`tests.faults.worker_specs.known_specs`.
        seed: of its habits.
    """

    def __init__(self, path, table, seed):
        self.path, self.table = path, table
        self.random = random.Random(f"player {seed}")
        self.told = Told()

    def play(self, requests):
        """Ask as many requests, over as many connections as it takes; -> what was seen."""
        counts = self.told.counts
        while counts["requests"] < requests and len(self.told.wrong) < MOST_WRONG:
            some = min(requests - counts["requests"], self.random.randint(1, 2 * SESSION))
            try:
                with contextlib.closing(Line(self.path)) as line:
                    Session(self, line).run(some)
            except (Wrong, OSError, Pp4Error) as error:
                self.told.wrong.append(f"{type(error).__name__}: {error}")
        return self.told


class Session:
    """One connection of a player."""

    def __init__(self, player, line):
        self.line = line
        self.random, self.told = player.random, player.told
        self.depth = self.random.choice(sorted(player.table))
        self.specs = player.table[self.depth]
        self.sequence, self.live, self.width = 0, {}, self.random.randint(1, AT_ONCE)
        # an engine sends the features of all its requests before the drafts of all
        self.drafts_last = self.random.random() < DRAFTS_LAST
        self.told.counts["sessions"] += 1

    def next(self):
        self.sequence += 1
        return self.sequence

    def run(self, requests):
        """Ask as many requests, or fewer where it leaves before."""
        self._greet()
        while requests or self.live:
            fresh = min(requests, self.width - len(self.live))
            requests -= fresh
            self._send([self._begun() for _ in range(fresh)])
            if self.random.random() < LEAVES * self.width:
                self._leave()
                return
            self._take(self._received())
        require(not self._left(), "questions without an answer", self._left())

    def _greet(self):
        self.line.socket.sendall(encode(Hello(sequence=self.next(), depth=self.depth)))
        (frame,) = self._received()
        require(isinstance(frame.message, Welcome), "no WELCOME", frame.message)
        self.samples = frame.message.offer.sampled

    def _received(self):
        frames = self.line.receive()
        require(frames is not None, "the worker closed the connection")
        return frames

    def _begun(self):
        """-> a new request and its first questions."""
        self.told.counts["requests"] += 1
        # few numbers, so that those of different clients are the same
        number = self.random.choice([one for one in range(AT_ONCE) if one not in self.live])
        live = self.live[number] = Live(self._script(number, self.random.choice(self.specs)))
        return live, next(live.script)

    def _send(self, groups):
        """Send the questions of some requests in one piece."""
        pieces = []
        for live, asked in groups:
            questions = [question for question, _ in asked]
            live.answers, live.waits = [], {question.sequence for question in questions}
            drafts = {one.sequence for one in questions if isinstance(one, Draft)}
            live.drafts = drafts - live.bad
            self.told.counts["asked"] += len(live.drafts)
            frames = [(isinstance(one, Draft | Abort), encode(one, body)) for one, body in asked]
            # an end that comes at once finds its draft in the queue, a later one in a block
            ends = bool(drafts) and isinstance(questions[-1], Abort | Close)
            if ends and (self.drafts_last or self.random.random() < LATER):
                live.later = frames.pop()[1]
            pieces += frames
        if self.drafts_last:
            pieces.sort(key=lambda piece: piece[0])
        if pieces:
            self.line.socket.sendall(b"".join(frame for _, frame in pieces))

    def _take(self, frames, *, go_on=True):
        """Sort answers to their questions, and go on where all have come."""
        for live in self.live.values():
            if live.later and go_on:
                self.line.socket.sendall(live.later)
                live.later = b""
        groups = []
        for frame in frames:
            sequence = frame.message.sequence
            owners = [one for one in self.live.items() if sequence in one[1].waits]
            require(owners, "an answer that nobody waits for", frame.message)
            number, live = owners[0]
            live.waits.remove(sequence)
            live.answers.append(frame)
            if live.waits:
                continue
            live.drafts = set()
            try:
                groups.append((live, live.script.send(live.answers)))
            except StopIteration:
                del self.live[number]
        if go_on:
            self._send(groups)
        else:
            for live, _ in groups:
                live.bad = set()

    def _left(self):
        return [one for live in self.live.values() for one in live.waits]

    # -- one request ------------------------------------------------------------------------

    def _script(self, number, spec):
        """Ask for a request from its opening to its end; yields questions, is sent answers."""
        asked = [(Open(sequence=self.next(), request=number, key=spec.key), b"")]
        known, live = 0, self.live
        for step in spec.steps:
            asked += self._features(number, spec, known, step.length)
            known = step.length
            if self.random.random() > IN_ONE_PIECE:
                yield from self._plainly(asked)
                asked = []
            if self.random.random() < BAD:
                if asked:
                    yield from self._plainly(asked)
                    asked = []
                yield from self._badly(number, step, live[number])
            ended = yield from self._draft(number, step, asked)
            asked = []
            if ended:
                return
        yield from self._plainly([(Close(sequence=self.next(), request=number), b"")])

    def _features(self, number, spec, known, length):
        """Questions that append features, cut at random."""
        asked = []
        while known < length:
            tokens = length - known
            if self.random.random() < CUT:
                tokens = self.random.randint(1, tokens)
            body = spec.features[known : known + tokens].tobytes()
            question = Features(sequence=self.next(), request=number, first=known, tokens=tokens)
            asked.append((question, body))
            known += tokens
        return asked

    def _plainly(self, asked):
        """Ask what can only be answered in one way."""
        if not asked:
            return
        answers = yield asked
        require(len(answers) == len(asked), "answers", len(answers))
        for (question, _), frame in zip(asked, answers, strict=True):
            self._check_plain(question, frame.message)

    def _check_plain(self, question, answer):
        kind = {Open: Opened, Features: Appended, Close: Closed}[type(question)]
        right = isinstance(answer, kind) and answer.sequence == question.sequence
        require(right and answer.request == question.request, "another answer", question, answer)
        if isinstance(question, Features):
            require(answer.length == question.first + question.tokens, "length", answer)

    def _question(self, number, step, **changes):
        members = {
            "request": number,
            "generation": self.random.getrandbits(64),
            "slot": self.random.getrandbits(32),
            "round": step.round,
            "position": step.position,
            "anchor": step.anchor,
            "mode": step.mode,
            "temperature": step.temperature,
        }
        return Draft(sequence=self.next(), **{**members, **changes})

    def _badly(self, number, step, live):
        """Ask for a draft that has to be refused, and that changes nothing."""
        wrong = self.random.choice(
            [{"position": step.position + 1}, {"anchor": 1 << 31}, {"request": 1 << 40}]
        )
        question = self._question(number, step, **wrong)
        live.bad = {question.sequence}
        (frame,) = yield [(question, b"")]
        live.bad = set()
        answer = frame.message
        right = isinstance(answer, Refused) and answer.refusal["code"] == "BAD_INPUT"
        require(right, "not refused", question, answer)
        self.told.counts["bad"] += 1

    def _draft(self, number, step, before):
        """Ask for one draft, perhaps give it up; -> whether that was the end of the request."""
        question, end = self._question(number, step), None
        chance = self.random.random()
        if chance < ABORTS:
            end = Abort(sequence=self.next(), request=number)
        elif chance < ABORTS + CLOSES:
            end = Close(sequence=self.next(), request=number)
        asked = [*before, (question, b"")] + ([] if end is None else [(end, b"")])
        answers = yield asked
        for (plain, _), frame in zip(before, answers, strict=False):
            self._check_plain(plain, frame.message)
        drafted, *rest = answers[len(before) :]
        given_up = self._check_draft(question, step, drafted, may_be_given_up=end is not None)
        if end is not None:
            self._check_end(end, rest, given_up)
        return isinstance(end, Close)

    def _check_draft(self, question, step, frame, *, may_be_given_up):
        """-> whether it was given up."""
        answer = frame.message
        require(answer.sequence == question.sequence, "out of order", question, answer)
        if may_be_given_up and isinstance(answer, Refused):
            require(answer.refusal["code"] == "INTERRUPTED", "another refusal", answer)
            self.told.counts["interrupted"] += 1
            return True
        require(isinstance(answer, Drafted), "no draft", question, answer)
        for name in ("request", "generation", "slot", "round", "position"):
            require(getattr(answer, name) == getattr(question, name), name, question, answer)
        mode = question.mode if self.samples else "greedy"
        require((answer.mode, answer.depth) == (mode, self.depth), "mode", question, answer)
        body = bytes(frame.body)
        require(body in step.right, f"another block: {differs(body, step.right)}", question)
        self.told.counts["proposals"] += 1
        return False

    def _check_end(self, end, rest, given_up):
        kind = Aborted if isinstance(end, Abort) else Closed
        require(len(rest) == 1 and isinstance(rest[0].message, kind), "no end", end, rest)
        answer = rest[0].message
        require(answer.request == end.request, "another request", end, answer)
        if isinstance(end, Abort):
            require(answer.dropped == given_up, "what became of a draft", answer, given_up)
            self.told.counts["dropped"] += given_up

    # -- leaving ----------------------------------------------------------------------------

    def _leave(self):
        """End the connection in the middle of everything."""
        connected = self.line.socket
        way = self.random.choice(["at once", "half a frame", "unread", "half closed"])
        if way == "half a frame":
            body = bytes(64)
            whole = encode(Features(sequence=self.next(), request=0, first=0, tokens=1), body)
            connected.sendall(whole[: self.random.randrange(1, len(whole))])
        elif way == "unread":
            # what comes stays where it is: the worker is told only when it sends again
            connected.recv(1)
        elif way == "half closed":
            connected.shutdown(socket.SHUT_WR)
            while frames := self.line.receive():
                self._take(frames, go_on=False)
        self._count_left()

    def _count_left(self):
        # those that are part of a group whose answers were not all looked at count as well: the
        # client has not said what it saw of them
        for live in self.live.values():
            self.told.counts["left"] += len(live.drafts)
            self.told.counts["bad_left"] += len(live.bad)
