"""A HOLD whose programs are played: what is started, asked and stopped is written down in order."""

import hashlib
import json
from types import SimpleNamespace

from pp4.measure import far
from pp4.measure.programs import Limits
from pp4.measure.schedule import STANDARD
from pp4.wire import Event, Reply
from pp4.wire.facts import read
from pp4.wire.frozen import ranks_event
from pp4.wire.measuring import Measure, Measured, Pair
from tests.unit.qualify.fakes import Hold
from tests.unit.qualify.whole_runs import primed, served, settled, torn_down

SMALL = STANDARD.model_copy(
    update={
        "batches": (1, 8),
        "temperatures": ("0", "0.7"),
        "new_tokens": 4,
        "warm_up": 1,
        "greedy": 1,
        "headline": 1,
        "primary": 2,
        "profiled": 1,
    }
)
PAIR = Pair(target="target", drafter="drafter", prompts="prompts.jsonl")
MIB = 1 << 20
PREPARED = {
    "target_sha256": "a" * 64,
    "drafter_sha256": "d" * 64,
    "prompts_sha256": "b" * 64,
    "prompts": 64,
    "vocab": 1024,
    "context": 106,
    "device": "CPU",
    "versions": {"torch": "2"},
}


def digest(*words):
    return hashlib.sha256(" ".join(map(str, words)).encode()).hexdigest()


def round_of(asked, **changes):
    """What an engine says of a round; text at T = 0 does not depend on the arm."""
    profiled = asked["phase"] == "profiled"
    return {
        **{name: asked[name] for name in ("phase", "index", "batch", "temperature")},
        "tokens": 4 * asked["batch"],
        "elapsed_ns": "1000",
        "drafted": asked["batch"],
        "accepted_by_position": [1, 1, 0, 0, 0],
        "outputs_sha256": digest(*(asked[name] for name in ("phase", "index", "batch"))),
        "draft_ns": [5, 6],
        "target_ns": [7, 8] if profiled else [],
        "verify_ns": [1, 2] if profiled else [],
        "memory_bytes": {"rss.engine": str(100 * MIB)},
        "facts": {},
        **changes,
    }


def look_of(asked, **changes):
    """What an engine says it has counted."""
    return {
        "label": asked["label"],
        "failed_rounds": {"timed_out": "0"},
        "counters": {"drafts_late": "0"},
        "memory_bytes": {"rss.engine": str(100 * MIB)},
        "unsupported": {},
        **changes,
    }


class Played:
    """The asking end of a program that is played.

    Args:
        stage: who knows the answers.
        arm: of which it is.
        who: ``engine`` or ``worker``.
        settings: of a worker.
    """

    def __init__(self, stage, arm, who, settings=None):
        self.stage, self.arm, self.who, self.settings = stage, arm, who, settings
        self.pid = 1000 + len(stage.environments)
        self._messages = []

    def send(self, message, deadline):
        said = self.stage.words_for(self.arm, self.who, message)
        self.stage.transcript.append(said)
        if message.verb == "serve":
            name = ranks_event((41, 42))
            self._messages.append(Event(sequence=message.sequence, name=name))
        answer = self.stage.answer(self, message)
        if isinstance(answer, Exception):
            self._messages.append(answer)
        else:
            self._messages.append(Reply(sequence=message.sequence, facts=answer))

    def receive(self, deadline):
        message = self._messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message


class Stage(Hold):
    """The HOLD.

    Attributes:
        transcript: what was started, asked, told and stopped.
        environments: of each program by its label.
        modules: likewise.
        plots: what comes in the place of the usual answer, by arm, verb and label of what is asked:
            an error, a tree, or a function of what was asked.
        told: items that the step told.
        on_told: called with each of them.
    """

    def __init__(self, directory, gpus=()):
        super().__init__(directory, gpus=gpus)
        self.transcript, self.environments, self.modules, self.plots = [], {}, {}, {}
        self.told, self.on_told, self.settings = [], lambda item: None, {}
        self.hold_id, self.transport, self.exclusion = "0123456789abcdef", "local", "private"
        self.granted = SimpleNamespace(model_dump=lambda mode: {})

    # -- what the product does with a HOLD -------------------------------------------------

    def start(self, module, arguments, *, environment, label):
        who, _, arm = label.partition("-")
        arm = arm.upper()
        self.transcript.append(f"{arm} {who} starts")
        self.environments[label], self.modules[label] = environment, module
        self.settings[label] = arguments
        played = Played(self, arm, who, arguments)
        self.own(played.pid, label)
        return played

    def own(self, pid, label):
        super().own(pid, label)
        self.alive += (SimpleNamespace(pid=pid, label=label),)

    def stop(self, channel):
        super().stop(channel)
        self.transcript.append(f"{channel.arm} {channel.who} stopped")
        mark = f"{channel.who}-{channel.arm.lower()}"
        self.end(mark)

    def end(self, mark):
        """Processes of these labels are gone."""
        self.alive = tuple(one for one in self.alive if not one.label.startswith(mark))

    def tell(self, item):
        """What the step tells."""
        self.told.append(item)
        if item.get("round") or item.get("snapshot"):
            what = item.get("round") or {"phase": "snapshot", "index": item["snapshot"]["label"]}
            self.transcript.append(f"{item['arm']} told: {what['phase']} {what['index']}")
        self.on_told(item)

    # -- what the programs do --------------------------------------------------------------

    def words_for(self, arm, who, message):
        asked = message.arguments
        more = {
            "round": lambda: f" {asked['phase']} {asked['index']}",
            "look": lambda: f" {asked['label']}",
        }.get(message.verb, str)()
        return f"{arm} {who} {message.verb}{more}"

    def answer(self, played, message):
        asked = message.arguments
        said = self.words_for(played.arm, played.who, message)
        usual = {
            "prepare": lambda: PREPARED,
            "connect": dict,
            "disconnect": dict,
            "round": lambda: round_of(asked),
            "look": lambda: look_of(asked),
            "serve": lambda: self.served(played.arm),
            "settle": lambda: settled().model_dump(mode="json"),
            "teardown": lambda: torn_down().model_dump(mode="json"),
        }[message.verb]
        plot = self.plots.get(said)
        if plot is None:
            return usual()
        return plot(asked) if callable(plot) else plot

    def served(self, arm, **changes):
        """What a worker of an arm says: one that is off has no kernel of its own."""
        kernels = (primed(0), primed(1)) if arm.startswith("B") else ()
        usual = {"socket": str(self.directory / f"{arm.lower()}.s"), "kernels": kernels}
        return served(**{**usual, **changes}).model_dump(mode="json")

    # -- what a test asks ------------------------------------------------------------------

    def measure(self, work="A1B1", schedule=SMALL, report=None, **more):
        """Run a half or a budget; -> what the step answers."""
        asked = Measure(work=work, command="pp4 measure", pair=PAIR, schedule=schedule, **more)
        compiled = self.directory / "compiled"
        told = far.measure(self, asked, self, report, compiled, Limits())
        return read(Measured, told)

    def steps(self):
        """Arms and phases as the journal has them."""
        return [
            (line["step"].removeprefix("arm-"), line["event"])
            for line in self.lines()
            if line["step"].startswith("arm-")
        ]

    def kept(self):
        """What lies on the disk, by arm."""
        text = (self.directory / "rounds.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]
