"""What puts a host back is run to its end, once, and as if nobody had held anything."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pp4.errors import Code, RefusedError
from tests.faults.windows import (
    GPUS,
    PATIENCE_S,
    Coordinator,
    gone,
    program,
    supervisor_of,
    told_by,
    tombstone,
    until,
    window,
)


def python(text, limit_s=100.0):
    return {"argv": [sys.executable, "-c", text], "limit_s": limit_s}


def waiting(place):
    """A command that writes down its id and goes on once there is a file ``on``."""
    return python(
        "import os, time\n"
        f"open({str(place / 'began')!r}, 'a').write(f'{{os.getpid()}} ')\n"
        f"while not os.path.exists({str(place / 'on')!r}): time.sleep(0.02)\n"
        f"open({str(place / 'done')!r}, 'a').write('x')"
    )


def began(place):
    path = place / "began"
    return path.read_text().split() if path.exists() else []


def killed(place, coordinator, restore):
    """A HOLD whose supervisor was killed before it put the host back."""
    one = coordinator({}, restore=restore)
    os.kill(supervisor_of(place, one.hold).pid, signal.SIGKILL)
    until(lambda: gone(one.drill))
    one.wait()
    return one.hold


def recovering(place, hold):
    environment = {"PP4_STATE_DIR": str(place / "state"), "PP4_HOST_DIR": str(place / "host")}
    return subprocess.Popen(
        program("pp4.hold.recovery", hold),
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_host_is_put_back_also_where_nothing_can_be_said_about_it(place):
    path, after = place / "began", place / "after"
    quiesce = [python(f"import os; open({str(path)!r}, 'w').write(os.getcwd())")]
    with window(place, quiesce=quiesce, restore=[python(f"open({str(after)!r}, 'w')")]):
        # as a disk does it that takes no more writes
        log = place / "state" / "holds" / os.path.basename(path.read_text()) / "around.log"
        log.unlink()
        log.mkdir()
    assert after.exists()


def test_what_is_started_again_does_not_run_from_the_source_of_pp4(place):
    # an interpreter that is started so would take modules of pp4 from there
    names = []
    for name in ("before", "after"):
        path = str(place / name)
        names.append([python(f"import json, os; json.dump(dict(os.environ), open({path!r}, 'w'))")])
    with window(place, quiesce=names[0], restore=names[1]):
        pass
    for name in ("before", "after"):
        found = json.loads((place / name).read_text())
        assert "PYTHONPATH" not in found
        assert found["PATH"] == os.environ["PATH"]
    assert "PP4_HOLD" not in found


def recovered(process):
    """What a recovery says that it has put back."""
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert json.loads(said)["state"] == "closed"
    return json.loads(said)["facts"].get("put_back")


def test_two_who_come_at_once_put_a_host_back_once(place, coordinator):
    hold = killed(place, coordinator, [waiting(place)])
    first = recovering(place, hold)
    until(lambda: began(place))
    # the first has the locks of the GPUs meanwhile
    assert recovered(recovering(place, hold)) == [f"HOLD {hold}: later, since {GPUS[0]} is held"]
    (place / "on").touch()
    assert recovered(first) == [f"{sys.executable}: done"]
    assert recovered(recovering(place, hold)) is None
    assert len(began(place)) == 1
    assert (place / "done").read_text() == "x"


def test_nothing_is_put_back_under_the_hold_of_somebody_else(place, coordinator):
    after = place / "after"
    hold = killed(place, coordinator, [python(f"open({str(after)!r}, 'a').write('x')")])
    with window(place, state_dir=str(place / "other")):
        # that one has buried it, and its commands are its own user's
        assert tombstone(place, hold)["why"] == "abandoned"
        assert recovered(recovering(place, hold)) == [
            f"HOLD {hold}: later, since {GPUS[0]} is held"
        ]
        assert not after.exists()
    assert recovered(recovering(place, hold)) == [f"{sys.executable}: done"]
    assert after.read_text() == "x"


def test_commands_that_a_disk_has_spoiled_are_named_and_kept(place, coordinator):
    hold = killed(place, coordinator, [python("pass")])
    kept = place / "state" / "holds" / hold / "restore.json"
    kept.write_text('{"restore":[{"argv":"true"}]}')
    with pytest.raises(RefusedError) as raised, window(place):
        pass
    assert raised.value.refusal.code is Code.UNREADABLE
    assert raised.value.refusal.where == str(kept)
    assert "put the host back by hand" in raised.value.refusal.next
    assert kept.exists()
    kept.unlink()
    with window(place):
        pass


def waits_for_input(pid):
    """Whether a process waits for its standard input, among other things."""
    waited = [path.read_text() for path in Path(f"/proc/{pid}/fdinfo").iterdir()]
    return any(line.split()[:2] == ["tfd:", "0"] for text in waited for line in text.splitlines())


def test_whoever_leaves_before_the_grant_cuts_nothing_short_that_puts_a_host_back(
    place, coordinator
):
    lost = killed(place, coordinator, [waiting(place)])
    leaving = Coordinator.__new__(Coordinator)
    leaving.launch(place)
    try:
        until(lambda: began(place))
        (relay,) = map(
            int, told_by(leaving.process.pid, f"task/{leaving.process.pid}/children").split()
        )
        holds = [path.parent.name for path in place.glob("*/holds/*/registration.json")]
        (other,) = set(holds) - {lost}
        supervisor = supervisor_of(place, other)
        assert waits_for_input(relay)
        leaving.signal(signal.SIGKILL)
        # it has seen that nobody waits any more, and tells the supervisor
        until(lambda: not waits_for_input(relay))
        (place / "on").touch()
        assert until(lambda: tombstone(place, other))["why"] == "cancelled"
        until(lambda: not supervisor.alive())
    finally:
        leaving.close()
    with window(place):
        assert (place / "done").read_text() == "x"
        assert len(began(place)) == 1
