"""What a race found, as text: every line, and the targets "must / aim / found"."""

from dataclasses import dataclass

from benchmarks.racing.field import BY_NAME, DEPTH, FLASHINFER, PAIR

MARKOV_RANK = 256
_VOCAB = 129280
_TEMPERATURES = ("warm", "cold")


@dataclass(frozen=True)
class Target:
    """A bound in microseconds, or a factor that is to be reached, and what was found.

    ``found``: warm and cold, None where nothing was measured.
    """

    what: str
    must: float
    aim: float
    found: tuple[float | None, float | None]
    higher: bool = False

    def verdicts(self):
        """A word for warm and for cold."""
        return [self._verdict(one) for one in self.found]

    def _verdict(self, found):
        if found is None:
            return "not measured"
        reached = [found >= bound if self.higher else found <= bound for bound in self._bounds()]
        return "aim" if reached[1] else "must" if reached[0] else "missed"

    def _bounds(self):
        return self.must, self.aim


class Found:
    """Lines of one race by what they are of."""

    def __init__(self, lines):
        self._lines = {
            (one["contender"], one["vocab"], one["rows"], one["batch"]): one for one in lines
        }

    def us(self, contender, rows, batch, temperature, vocab=_VOCAB):
        """Median of a position around groups, microseconds, of the slower rank; or None."""
        line = self._lines.get((contender, vocab, rows, batch), {})
        if line.get("state") != "timed":
            return None
        return line[temperature]["group"]["median_us"]

    def each(self, ask):
        """Ask for warm and for cold."""
        return tuple(ask(temperature) for temperature in _TEMPERATURES)


def _ratio(left, right):
    return None if left is None or right is None else left / right


def stream_us(bytes_per_s, vocab=_VOCAB):
    """Microseconds to read one rank's half of W2 once at a rate of bytes."""
    return vocab // 2 * MARKOV_RANK * 2 / bytes_per_s * 1e6


def targets(lines, bytes_per_s):
    """The targets of the issue that a run says something about.

    Args:
        lines: lines of the race.
        bytes_per_s: what a copy on the device reads and writes; None where not measured.
    """
    found = Found(lines)
    made = []

    def add(what, must, aim, ask, higher=False):
        made.append(Target(what, must, aim, found.each(ask), higher))

    for batch, must, aim in ((1, 7.5, 5), (8, 9, 6.5), (32, 14, 9)):
        add(
            f"pair, cached, B = {batch}: us", must, aim,
            lambda t, b=batch: found.us("pp4_pair", "cached", b, t),
        )  # fmt: skip
    for batch, must, aim in ((1, 10, 16), (8, 10, 14), (32, 8, 12)):
        add(
            f"torch top-k and NCCL / pair, cached, B = {batch}", must, aim,
            lambda t, b=batch: _ratio(
                found.us("nccl_topk", "cached", b, t), found.us("pp4_pair", "cached", b, t)
            ),
            higher=True,
        )  # fmt: skip
    for batch in (1, 8, 32):
        add(
            f"best FlashInfer / solo, cached, B = {batch}", 5, 8,
            lambda t, b=batch: _ratio(_best(found, b, t), found.us("pp4_solo", "cached", b, t)),
            higher=True,
        )  # fmt: skip
    made += _uncached(found, bytes_per_s)
    add("pair, uncached, B = 32: us", 45, 30, lambda t: found.us("pp4_pair", "uncached", 32, t))
    add("pair, cached, B = 1, block of five: us", 38, 25, lambda t: _block(found, t))
    return made


def _best(found, batch, temperature):
    """The quickest sequence of FlashInfer."""
    times = [found.us(name, "cached", batch, temperature) for name in FLASHINFER]
    return min((one for one in times if one is not None), default=None)


def _block(found, temperature):
    one = found.us("pp4_pair", "cached", 1, temperature)
    return None if one is None else DEPTH * one


def _uncached(found, bytes_per_s):
    """Uncached rows against the stream of W2 and the cached time of the same temperature.

    A bound differs from warm to cold, so each temperature is a target of its own.
    """
    made = []
    for batch in (1, 8):
        for place, temperature in enumerate(_TEMPERATURES):
            cached = found.us("pp4_pair", "cached", batch, temperature)
            time = found.us("pp4_pair", "uncached", batch, temperature)
            bounds = (0.0, 0.0)
            if cached is None or bytes_per_s is None:
                time = None
            else:
                stream = stream_us(bytes_per_s)
                bounds = 1.5 * stream + cached, 1.2 * stream + cached
            both = (time, None) if place == 0 else (None, time)
            made.append(Target(f"pair, uncached, B = {batch}, {temperature}: us", *bounds, both))
    return made


def targets_text(made):
    """Markdown of the targets."""
    rows = [
        "| V = 129280, tau 0.7 | must | aim | found warm | found cold |",
        "|---|---|---|---|---|",
    ]
    for one in made:
        cells = [
            "-" if found is None else f"{found:.2f} ({verdict})"
            for found, verdict in zip(one.found, one.verdicts(), strict=True)
        ]
        bounds = [f"{bound:.2f}" if bound else "-" for bound in (one.must, one.aim)]
        rows.append(f"| {' | '.join([one.what, *bounds, *cells])} |")
    return "\n".join(rows)


def lines_text(lines):
    """Markdown of every line: microseconds per position and how many times pp4's they are."""
    found = Found(lines)
    rows = [
        "| contender | V | rows | B | warm | cold | warm p99, p99.9 | cold p99, p99.9 | x pp4 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        head = [line["contender"], line["vocab"], line["rows"], line["batch"]]
        if line["state"] == "timed":
            cells = [f"{line[one]['group']['median_us']:.2f}" for one in _TEMPERATURES]
            cells += [_tail(line[one]["single"]) for one in _TEMPERATURES]
            cells.append(_times_ours(found, line))
        else:
            cells = [_plain(line), "", "", "", ""]
        rows.append("| " + " | ".join(str(cell) for cell in [*head, *cells]) + " |")
    return "\n".join(rows)


def _tail(single):
    return f"{single['p99_us']:.2f}, {single['p999_us']:.2f}"


def _plain(line):
    """State and reason on one line, no cell broken by what somebody else wrote."""
    words = " ".join(f"{line['state']} {line.get('found', '')}".split())
    return words.replace("|", "/")[:200]


def _times_ours(found, line):
    ours = "pp4_pair" if BY_NAME[line["contender"]].seats == PAIR else "pp4_solo"
    ratios = [
        _ratio(
            line[one]["group"]["median_us"],
            found.us(ours, line["rows"], line["batch"], one, line["vocab"]),
        )
        for one in _TEMPERATURES
    ]
    return " / ".join("-" if one is None else f"{one:.2f}" for one in ratios)
