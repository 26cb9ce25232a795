"""What is said about a hop: a step on a further host, in a child of a HOLD.

The near host is the receiving host of the HOLD, the far host the one that it reaches over SSH.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from pp4.wire.frames import Model
from pp4.wire.holds import Given, Label, Named, Open

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LONGEST_FILE = 256 << 20
"""Bytes of a file that a hop may bring: the far supervisor reads it once while its lease runs."""


class FarLogin(Model):
    """A further host as the near host reaches it.

    Attributes:
        address: host name or IP address.
        port: TCP port of its SSH server.
        user: the account there.
        identity_file: the one private key that is offered; an absolute path on the near host.
        host_key: type and base64 of its public key.
        python: its interpreter, a name or an absolute path.
        state_dir: ``PP4_STATE_DIR`` there, None for the account's default.
        host_dir: ``PP4_HOST_DIR`` there, None for the host's default.
    """

    address: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65_535)] = 22
    user: Annotated[str, Field(min_length=1)]
    identity_file: Annotated[str, Field(pattern=r"^/")]
    host_key: str
    python: Annotated[str, Field(min_length=1)] = "python3"
    state_dir: str | None = None
    host_dir: str | None = None

    def __str__(self) -> str:
        return f"{self.user}@{self.address}:{self.port}"


class Brought(Model):
    """A file of the near host that the far step needs.

    Attributes:
        source: absolute path on the near host.
        target: relative name below the working directory of the child.
        sha256: of its bytes.
    """

    source: Annotated[str, Field(pattern=r"^/")]
    target: str
    sha256: Sha256


class FarStep(Model):
    """The step that runs on the far host, as :class:`pp4.wire.holds.Start` has it."""

    label: Label
    module: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.]*$")]
    arguments: dict[str, Any] = Field(default_factory=dict)


class Hop(Named):
    """Run one step on a further host.

    Attributes:
        label: ``hop-`` and the name of the hop; names the near step.
        login: the further host.
        files: brought there first.
        step: what runs there.
    """

    label: Annotated[str, Field(pattern=r"^hop-[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    login: FarLogin
    files: tuple[Brought, ...] = ()
    step: FarStep


class Recorded(Model):
    """What the near books say of a hop before anything is contacted.

    Attributes:
        hop: its number in its HOLD.
        label: of the near step.
        login: the further host.
        asked: what the far host is asked for; without evidence, and bound and lease are those
            that the HOLD began with.
    """

    hop: Annotated[int, Field(ge=1)]
    label: str
    login: FarLogin
    asked: Open


class Order(Model):
    """What the near step is told.

    Attributes:
        recorded: what stands in the books.
        evidence: what admits the child; the far host judges it once more.
        files: brought there first.
        step: what runs there.
    """

    recorded: Recorded
    evidence: tuple[Given, ...] = ()
    files: tuple[Brought, ...]
    step: FarStep


class Place(Named):
    """Give a file that was uploaded its name in the working directory of the HOLD.

    Attributes:
        part: its temporary name there, :func:`part_of`.
        target: its relative name there.
        sha256: what its bytes have to have.
        size: how many there have to be.
    """

    part: str
    target: str
    sha256: Sha256
    size: Annotated[int, Field(ge=0, le=LONGEST_FILE)]


def part_of(hold: str, sha256: str) -> str:
    """The temporary name of a file on its way to a HOLD."""
    return f".hop-{hold}-{sha256}"


class Hopped(Model):
    """The answer of a hop: what the far step said, and the end of the child.

    Attributes:
        facts: of the far step.
        hold: id of the child.
        boot_id: boot of the far host.
        host_key: fingerprint of the key that it showed.
        tombstone: of the child.
    """

    facts: dict[str, Any]
    hold: str
    boot_id: str
    host_key: str
    tombstone: dict[str, Any]


class Child(Model):
    """What a far host knows of one child.

    Attributes:
        boot_id: its boot.
        hold: id of the child, None where there is none and none can be opened any more.
        fence: of the child.
    """

    boot_id: str
    hold: str | None
    fence: int
