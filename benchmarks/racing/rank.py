"""One process of the race, for one GPU or for rank 0 or 1 of a pair: jobs in, answers out.

A job is a line of JSON on standard input with a verb and what it needs; its answer is a line on
standard output.  What goes wrong in a job is its answer, and the process lives on where it can.
"""

import argparse
import hashlib
import json
import os
import sys
import traceback
from datetime import timedelta
from functools import cached_property
from importlib import import_module
from pathlib import Path

import torch

from benchmarks.racing import inputs, probe_field, timing
from benchmarks.racing.contenders import Absent
from benchmarks.racing.field import BY_NAME, DEPTH, PAIR
from benchmarks.racing.material import Material
from benchmarks.racing.setting import Setting
from pp4.kernels import loading
from pp4.kernels.graph import capture
from pp4.kernels.link import Bounds, SharedMemoryLink, SoloLink
from pp4.kernels.symmetric import Rendezvous, SymmetricMemoryLink
from pp4.worker import group

MEETING = timedelta(seconds=180)
ROWS = 64
"""Rows of the pair's one link: more than any batch here."""
START = 7
_CHAINS = 20
"""Of a probe's graph."""
_POLLS = 400_000
"""Of an interpreted wait: far more than a peer needs that is alive."""
_BOUNDS = Bounds(
    first_ns=5_000_000_000, next_ns=1_000_000_000, first_polls=_POLLS, next_polls=_POLLS
)


class Meeting:
    """The other rank: a rendezvous, a group to gather through, one link.

    Args:
        rank: 0 or 1.
        device: this rank's.
        directory: that both ranks may write, new for every pair.
    """

    def __init__(self, rank, device, directory):
        self.rank, self._device, self._directory = rank, device, directory
        backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
        self._store, self._whole = group.join(rank, directory / "group", backend)
        self._rendezvous = Rendezvous(self._store, rank, "race", MEETING)
        self._links = {}

    def agree(self, word):
        """Tell the other rank a word; -> its word."""
        return self._rendezvous.agree("", word)

    def link(self, name):
        """A link, as the product makes it; the one of this name, made at its first use."""
        if name not in self._links:
            self._links[name] = self._linked(name)
        return self._links[name]

    def _linked(self, name):
        if self._device.type == "cuda":
            return SymmetricMemoryLink(
                Rendezvous(self._store, self.rank, f"link-{name}", MEETING),
                group=self._whole,
                device=self._device,
                peer=torch.device("cuda", 1 - self.rank),
                rows=ROWS,
                start=START,
                bounds=_BOUNDS,
            )
        own, peer = (self._directory / f"{name}-{rank}" for rank in (self.rank, 1 - self.rank))
        link = SharedMemoryLink(own, peer, rank=self.rank, rows=ROWS, start=START, bounds=_BOUNDS)
        self.agree("made")
        link.connect()
        return link


class Racer:
    """What a process does for its parent.

    Args:
        rank: 0 or 1.
        device: "cuda" or "cpu".
        directory: shared by the ranks of one pair.
    """

    def __init__(self, rank, device, directory):
        self.rank, self._directory = rank, directory
        self.device = torch.device("cuda", rank) if device == "cuda" else torch.device("cpu")
        self.clock = timing.DeviceClock() if device == "cuda" else timing.HostClock()
        self._material = None
        self.verbs = {
            "race": self.race,
            "copy": self.copy,
            "versions": self.versions,
            "probe": self.probe,
        }
        if device == "cuda":
            torch.cuda.set_device(self.device)
        else:
            from pp4.kernels.interpreting import quicken

            quicken()

    @cached_property
    def meeting(self):
        """The other rank; whoever asks for it first, both do."""
        return Meeting(self.rank, self.device, self._directory)

    def versions(self, job):
        """What this process runs on."""
        import triton

        found = {"torch": torch.__version__, "triton": triton.__version__}
        if self.device.type == "cuda":
            found["gpu"] = torch.cuda.get_device_name(self.device)
            found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
        return found

    def copy(self, job):
        """Bytes per second of a copy."""
        return {"bytes_per_s": timing.copy_rate(self.device, self.clock)}

    def race(self, job):
        """Check a contender and, where nothing is wrong, time it."""
        entry = BY_NAME[job["contender"]]
        module, name = entry.path.split(":")
        paired = entry.seats == PAIR
        setting = self._setting(job, paired)
        try:
            made = import_module(f"benchmarks.racing.{module}")
            contender = getattr(made, name)(setting)
        except Absent as error:
            return {"state": "absent", "found": str(error)}
        found = self._checked(contender, setting)
        if found:
            return {"state": "red", "found": "; ".join(found)}
        if not job["replays"]:
            return {"state": "checked"}
        return self._timed(contender, setting, job["replays"])

    def probe(self, job):
        """Check one step and, where nothing is wrong, time it."""
        step = probe_field.BY_NAME[job["step"]]
        agree = self.meeting.agree if step.seats == PAIR else lambda word: word
        probing = import_module("benchmarks.racing.probing")
        given = dict(step.given) | job["given"]
        if step.seats == PAIR:
            given["link"] = self.meeting.link(step.name)
        try:
            probe = getattr(probing, step.make)(self.device, job["batch"], **given)
        except Absent as error:
            return {"state": "absent", "found": str(error)}
        if self.device.type == "cuda":
            arguments = {**probe.arguments(0), **probe.options}
            loading.load_as_called(probe.kernel, arguments, device=self.device)
        found = []
        for chains in (1, 2):
            agree("ready")
            probe.chain()
            found += probe.check(chains)
        theirs = agree("red" if found else "good")
        if found or theirs == "red":
            return {"state": "red", "found": "; ".join(found[:3]) or "on the other rank"}
        if not job["replays"]:
            return {"state": "checked"}
        times = self._priced(probe, step, job["replays"])
        # what came back in the timed rounds counts as much as what came back in the first ones
        late = probe.check(0) if step.seats == PAIR else []
        return {"state": "red", "found": late[0]} if late else {"state": "timed", **times}

    def _priced(self, probe, step, replays):
        """Microseconds of one step, over many launches at once: hosts are slower than kernels."""
        if step.seats == PAIR:
            # its epochs are arguments, which a graph would keep as they were
            self.meeting.agree("timing")
            count, launches, each = -(-replays // 10), [lambda: probe.launch(0)], probe.each
        else:
            chains = _CHAINS if probe.each == 1 else 1
            graph = capture(lambda: [probe.chain() for _ in range(chains)])
            count, launches, each = replays, [graph.replay], DEPTH * chains * probe.each
        return timing.told(timing.blocks_us(count, launches, self.clock, 1), each)

    def _setting(self, job, paired):
        shards = (self.rank,) if paired else (0, 1)
        wanted = (job["vocab"], job["rank_dim"], shards)
        held = self._material
        if held is None or wanted != (held.vocab, held.rank_dim, held.shards):
            # tables are tens of gigabytes: one is let go before the next is made
            self._material = held = None
            self._material = Material(*wanted[:2], self.device, shards)
        batch = job["batch"]
        return Setting(
            material=self._material,
            rows=job["rows"],
            batch=batch,
            tile=job["tile"],
            device=self.device,
            link=(lambda: self.meeting.link("race")) if paired else self._solo_link(batch),
            agree=self.meeting.agree if paired else lambda word: word,
        )

    def _solo_link(self, batch):
        return lambda: SoloLink(batch, device=self.device)

    def _given(self, kind, seed, setting):
        return inputs.given(kind, seed, setting.batch, setting.material.vocab, self.device)

    def _checked(self, contender, setting):
        """Every kind of inputs in one graph; -> what is wrong here, or on the other rank.

        Whatever is found, all kinds are gone through: the other rank goes through them too.
        """
        prepared, digests, found = None, hashlib.sha256(), []
        for number, kind in enumerate(inputs.KINDS):
            made = self._given(kind, 1000 + 10 * number, setting)
            if prepared is None:
                prepared = contender.prepare(made)
            else:
                prepared.load(made)
            found += [f"{kind}: {what}" for what in self._replayed(contender, prepared, made)]
            digests.update(prepared.digest().encode())
        return self._agreed(found, digests.hexdigest(), setting)

    def _replayed(self, contender, prepared, made):
        """One replay, and what is wrong with it."""
        # both have their inputs before either launches
        self._settle(contender.setting)
        prepared.replay()
        return contender.judge(prepared, made)

    @staticmethod
    def _agreed(found, digest, setting):
        """What is wrong here or there; nothing where both ranks have the same to say."""
        mine = f"{'red' if found else 'good'} {digest}"
        theirs = setting.agree(mine)
        if found or theirs == mine:
            return found[:3]
        return [f"the other rank says {theirs}, this one {mine}"]

    def _settle(self, setting):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        setting.agree("ready")

    def _timed(self, contender, setting, replays):
        """Warm and cold times, and a look at what the timed graphs gave."""
        columns = setting.material.last - setting.material.first
        most = inputs.MOST_SETS if self.device.type == "cuda" else inputs.FEW_SETS
        count = inputs.cold_sets(setting.batch, columns, most)
        sets = [self._given("timed", 5000 + 10 * number, setting) for number in range(count)]
        ready = [contender.prepare(made) for made in sets]
        told = {"sets": count}
        for name, graphs in (("warm", ready[:1]), ("cold", ready)):
            self._settle(setting)
            replay = [one.replay for one in graphs]
            told[name] = timing.measured(replays, replay, self.clock, contender.chains)
        found = []
        for place in sorted({0, count // 2, count - 1}):
            found += self._replayed(contender, ready[place], sets[place])
        found = self._agreed(found, "", setting)
        if found:
            return {"state": "red", "found": f"after the timing: {'; '.join(found)}"}
        return {"state": "timed", **told}


def main(argv=None):
    """Answer until the input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--directory", type=Path, required=True)
    asked = parser.parse_args(argv)
    # whatever a library prints must not end up between two answers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_grad_enabled(False)
    racer = Racer(asked.rank, asked.device, asked.directory)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = racer.verbs[job["verb"]](job)
        # one contender's end is not the race's, whatever it ends with: it becomes its line
        except Exception as error:
            traceback.print_exc()
            answer = {"state": "failed", "found": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
