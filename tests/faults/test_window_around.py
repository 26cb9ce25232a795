"""Commands of the host around the work: they end with the HOLD, and what is restored lives on."""

import json
import os
import signal
import sys
import threading

import pytest

from pp4.errors import Code, Pp4Error, RefusedError
from tests.faults.windows import (
    DRILLS,
    Coordinator,
    ask_there,
    gone,
    supervisor_of,
    tokens,
    tombstone,
    touch,
    until,
    window,
)


def test_the_host_is_made_quiet_before_and_put_back_after(place):
    before, after = place / "before", place / "after"
    with window(place, quiesce=[touch(before)], restore=[touch(after)]) as one:
        assert before.read_text() == "x"
        one.run("drill", DRILLS, {"answer": {}})
        assert not after.exists()
    assert after.read_text() == "x"
    assert one.tombstone["restored"] == [f"{sys.executable}: done"]


def test_a_host_that_does_not_get_quiet_refuses_and_is_put_back(place):
    quiesce, after = [touch(place / "before", status=3)], place / "after"
    with (
        pytest.raises(RefusedError) as raised,
        window(place, quiesce=quiesce, restore=[touch(after)]),
    ):
        pass
    assert raised.value.refusal.code is Code.NOT_IDLE
    assert "status 3" in raised.value.refusal.found
    assert after.read_text() == "x"
    # nothing is held, and the next one is granted
    with window(place):
        pass


def test_the_host_is_put_back_whoever_dies(place, coordinator):
    after = place / "after"
    one = coordinator({"start": ["deaf"]}, restore=[touch(after)])
    one.signal(signal.SIGKILL)
    found = until(lambda: tombstone(place, one.hold))
    assert (found["why"], found["restored"]) == ("abandoned", [f"{sys.executable}: done"])
    assert after.read_text() == "x"


def test_what_does_not_put_the_host_back_is_said(place):
    wrong = [touch(place / "after", status=4), {"argv": ["/no/such/program"], "limit_s": 1.0}]
    with window(place, restore=wrong) as one:
        pass
    first, second = one.tombstone["restored"]
    assert first == f"{sys.executable}: status 4"
    assert second.startswith("/no/such/program: ")
    assert "No such file" in second


def test_a_bound_that_is_too_short_for_the_end_is_refused(place):
    restore = [{"argv": ["true"], "limit_s": 30.0}]
    with pytest.raises(Pp4Error) as raised, window(place, bound_s=30.0, restore=restore):
        pass
    assert raised.value.refusal.code is Code.DEADLINE


def test_what_a_killed_supervisor_did_not_put_back_the_next_one_does(place, coordinator):
    after = place / "after"
    one = coordinator({}, restore=[touch(after)])
    os.kill(supervisor_of(place, one.hold).pid, signal.SIGKILL)
    until(lambda: gone(one.drill))
    assert not after.exists()
    with window(place):
        # before anything is done in the new one
        assert after.read_text() == "x"
    with window(place):
        pass
    # and once only
    assert after.read_text() == "x"


def test_a_supervisor_that_is_ended_while_the_host_gets_quiet_puts_it_back(place):
    before, after = place / "before", place / "after"
    text = f"open({str(before)!r}, 'w').close(); import time; time.sleep(100)"
    slow = {"argv": [sys.executable, "-c", text], "limit_s": 100.0}
    raised = []

    def ask():
        try:
            with window(place, quiesce=[slow], restore=[touch(after)]):
                raised.append(None)
        except Pp4Error as error:
            raised.append(error.refusal.code)

    asking = threading.Thread(target=ask)
    asking.start()
    until(before.exists)
    (registered,) = until(lambda: list(place.glob("*/holds/*/registration.json")))
    os.kill(json.loads(registered.read_text())["coordinator"]["pid"], signal.SIGTERM)
    asking.join()
    assert raised == [Code.INTERRUPTED]
    assert after.read_text() == "x"
    assert tombstone(place, registered.parent.name)["why"] == "cancelled"


def test_a_restore_command_that_does_not_end_is_ended_with_what_it_started(place):
    started = place / "started"
    text = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        f"open({str(started)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(1000)"
    )
    endless = {"argv": [sys.executable, "-c", text], "limit_s": 3.0}
    with window(place, restore=[endless]) as one:
        pass
    assert one.tombstone["restored"] == [f"{sys.executable}: no end within 3 s"]
    known = tokens(int(started.read_text()))
    until(lambda: gone(known))


# Leaves a child in its own session and one that is only left to itself, and ends.
DAEMON = """
import os, subprocess, sys
text = "import time; time.sleep(1000)"
for own in (False, True):
    child = subprocess.Popen([sys.executable, "-c", text], start_new_session=own)
    with open(sys.argv[1], "a") as file:
        file.write(f"{child.pid} ")
"""


def daemon(path):
    return {"argv": [sys.executable, "-c", DAEMON, str(path)], "limit_s": 30.0}


def daemons(path):
    return tokens(*map(int, path.read_text().split()))


@pytest.fixture
def serving(place):
    """Where restore commands write down what they start; ended after the test."""
    path = place / "serving"
    yield path
    for pid, token in daemons(path).items() if path.exists() else ():
        if token is not None:
            os.kill(pid, signal.SIGKILL)


def test_what_a_restore_command_starts_lives_on(place, serving):
    with window(place, restore=[daemon(serving)]):
        pass
    known = daemons(serving)
    assert len(known) == 2
    assert None not in known.values()
    with window(place):
        pass
    assert tokens(*known) == known


def test_what_is_restored_for_a_killed_supervisor_outlives_the_hold_that_does_it(
    place, coordinator, serving
):
    one = coordinator({}, restore=[daemon(serving)])
    os.kill(supervisor_of(place, one.hold).pid, signal.SIGKILL)
    until(lambda: gone(one.drill))
    with window(place) as two:
        known = daemons(serving)
        assert len(known) == 2
        two.run("drill", DRILLS, {"answer": {}})
    assert None not in known.values()
    assert tokens(*known) == known


def slow(path):
    """A command that writes down its id and would take long."""
    text = f"import os, time; open({str(path)!r}, 'w').write(str(os.getpid())); time.sleep(800)"
    return {"argv": [sys.executable, "-c", text], "limit_s": 800.0}


@pytest.fixture
def quieting(place):
    """A coordinator whose host gets quiet for a long time; with the process that does it."""
    path = place / "quieting"
    one = Coordinator.__new__(Coordinator)
    one.launch(place, quiesce=[slow(path)], restore=[touch(place / "after")])
    until(lambda: path.exists() and path.read_text())
    (registered,) = place.glob("*/holds/*/registration.json")
    one.hold = registered.parent.name
    one.command = tokens(int(path.read_text()))
    assert None not in one.command.values()
    yield one
    one.close()


def test_a_quiesce_command_ends_with_the_lease(place, quieting):
    quieting.signal(signal.SIGKILL)
    found = until(lambda: tombstone(place, quieting.hold))
    assert found["why"] == "abandoned"
    assert gone(quieting.command)
    assert (place / "after").read_text() == "x"


def test_a_quiesce_command_ends_with_its_supervisor(place, quieting):
    os.kill(supervisor_of(place, quieting.hold).pid, signal.SIGKILL)
    until(lambda: gone(quieting.command))
    with window(place):
        assert tombstone(place, quieting.hold)["why"] == "abandoned"
        assert (place / "after").read_text() == "x"


def test_a_cancelled_coordinator_does_not_wait_for_a_quiesce_command(place, quieting):
    quieting.signal(signal.SIGINT)
    quieting.wait()
    assert tombstone(place, quieting.hold)["why"] == "cancelled"
    assert gone(quieting.command)
    assert (place / "after").read_text() == "x"


def test_a_quiesce_command_ends_at_the_deadline(place):
    path = place / "quieting"
    with (
        pytest.raises(Pp4Error) as raised,
        window(place, quiesce=[slow(path)], restore=[touch(place / "after")], bound_s=36.0),
    ):
        pass
    assert raised.value.refusal.code is Code.DEADLINE
    known = tokens(int(path.read_text()))
    assert gone(known)
    assert (place / "after").read_text() == "x"


def test_the_rest_of_the_commands_is_not_run_after_one_that_fails(place):
    before, after = place / "before", place / "after"
    first, second = touch(before, status=3), touch(place / "second")
    with (
        pytest.raises(RefusedError),
        window(place, quiesce=[first, second], restore=[touch(after)]),
    ):
        pass
    assert before.exists()
    assert not (place / "second").exists()


def test_a_step_does_not_start_before_the_host_is_quiet(place, quieting):
    # another connection to the same HOLD, which waits for nothing
    with pytest.raises(RefusedError) as raised:
        ask_there(place, quieting.hold, "start", label="drill", module=DRILLS)
    assert raised.value.refusal.code is Code.NOT_IDLE
    quieting.signal(signal.SIGKILL)
    until(lambda: tombstone(place, quieting.hold))


# Leaves a child in its own session that ignores TERM, and ends once that has begun.
DEAF = """
import os, signal, sys
source, sink = os.pipe()
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(sys.argv[1], "w") as file:
        file.write(str(os.getpid()))
    os.write(sink, b"x")
    while True:
        signal.pause()
os.read(source, 1)
"""


def test_what_a_quiesce_command_leaves_running_is_over_before_anything_starts(place):
    left = place / "left"
    quiesce = [{"argv": [sys.executable, "-c", DEAF, str(left)], "limit_s": 30.0}]
    with window(place, quiesce=quiesce) as one:
        assert gone(tokens(int(left.read_text())))
        assert one.run("drill", DRILLS, {"answer": {"n": 1}}) == {"n": 1}
    assert one.tombstone["why"] == "done"
