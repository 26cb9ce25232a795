"""The further hosts of a HOLD file, tried before anything is measured: one small hop to each."""

from __future__ import annotations

from pp4.config.hold_file import HoldFile
from pp4.config.holds import Hop
from pp4.errors import Code, Refusal, WrongError
from pp4.hold import arrival
from pp4.hold.window import Window
from pp4.qualify.progress import Progress
from pp4.wire.hops import FarLogin, FarStep


def login_of(hop: Hop) -> FarLogin:
    """The login of a hop as it goes to the receiving host."""
    return FarLogin(
        address=hop.address,
        port=hop.port,
        user=hop.user,
        identity_file=hop.identity_file,
        host_key=hop.host_key,
        python=hop.python,
        state_dir=hop.state_dir,
        host_dir=hop.host_dir,
    )


def arrive(window: Window, file: HoldFile, source_digest: str, progress: Progress) -> None:
    """Run one hop to each further host, which opens and closes a child there.

    So whoever writes a hop into a HOLD file learns at once that the host is reached, has the pinned
    key, runs the same source and gives a tombstone.

    Args:
        window: the open HOLD.
        file: its HOLD file.
        source_digest: of the source that has to run there.
        progress: who watches.

    Raises:
        Pp4Error: what a further host or the way to it refuses.
        WrongError: ``DIGEST_MISMATCH``: another source ran there.
    """
    for hop in file.hops:
        step = FarStep(label="arrival", module=arrival.MODULE)
        hopped = window.hop(hop.name, login_of(hop), step)
        found = str(hopped.facts.get("source_digest"))
        if found != source_digest:
            where = f"hop {hop.name}"
            raise WrongError(Refusal(Code.DIGEST_MISMATCH, where, source_digest, found))
        why = hopped.tombstone.get("why")
        python = hopped.facts.get("python")
        progress.note(f"hop {hop.name}: arrived, Python {python}; HOLD {hopped.hold} closed: {why}")
