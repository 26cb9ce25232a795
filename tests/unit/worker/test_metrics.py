"""What Prometheus reads of a worker, over a real scrape."""

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pp4.errors import Code, RefusedError
from pp4.worker.figures import STATES, Figures, tell_figures
from pp4.worker.front.counters import Counters
from pp4.worker.metrics import ADDRESS, metrics

ABOUT = {"device": "reference", "abi": "pp4-draft-v1"}


def scrape(port):
    """Samples by name and labels."""
    with urllib.request.urlopen(f"http://{ADDRESS}:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def counted():
    found = Counters(positions=13, replies=3, aborted=1, connections=5, disconnects=2)
    found.appends, found.append_parts, found.appended = 7, 21, 80
    found.launched([900, 3_000_000], captured=4)
    found.launched([1_000_000_000_000], captured=1)
    found.received_bytes, found.sent_bytes = 100, 200
    found.refusals = Counter({"CACHE_FULL": 4, "BAD_INPUT": 1})
    return found


def test_a_scrape_says_what_was_counted(counted):
    now = Figures(
        "serving",
        counted,
        open_requests=6,
        waiting=2,
        cache_hits=8,
        cache_misses=9,
        epochs_left=0.75,
    )
    with metrics(0, lambda: now, ABOUT) as port:
        found = scrape(port)
    plain = {name[0]: value for name, value in found.items() if len(name) == 1}
    assert plain == {
        "pp4_worker_blocks_total": 2,
        "pp4_worker_rows_total": 3,
        "pp4_worker_padded_rows_total": 2,
        "pp4_worker_positions_total": 13,
        "pp4_worker_replies_total": 3,
        "pp4_worker_appends_total": 7,
        "pp4_worker_append_parts_total": 21,
        "pp4_worker_appended_total": 80,
        "pp4_worker_aborted_total": 1,
        "pp4_worker_connections_total": 5,
        "pp4_worker_disconnects_total": 2,
        "pp4_worker_received_bytes_total": 100,
        "pp4_worker_sent_bytes_total": 200,
        "pp4_worker_open_requests": 6,
        "pp4_worker_waiting": 2,
        "pp4_worker_epochs_left_ratio": 0.75,
        "pp4_worker_wait_seconds_count": 3,
        "pp4_worker_wait_seconds_sum": 1000.0030009,
    }
    assert found["pp4_worker_refusals_total", ("code", "CACHE_FULL")] == 4
    assert found["pp4_worker_refusals_total", ("code", "BAD_INPUT")] == 1
    assert found["pp4_worker_cache_lookups_total", ("found", "yes")] == 8
    assert found["pp4_worker_cache_lookups_total", ("found", "no")] == 9
    assert found["pp4_worker_info", *sorted(ABOUT.items())] == 1
    states = {dict(name[1:])["state"] for name, value in found.items() if "state" in name[0]}
    assert states == {state.replace(" ", "_") for state in STATES}
    assert [n[1][1] for n, v in found.items() if "_state" in n[0] and v] == ["serving"]


def test_waits_are_a_histogram_that_rises(counted):
    with metrics(0, lambda: Figures("serving", counted), ABOUT) as port:
        found = scrape(port)
    name = "pp4_worker_wait_seconds_bucket"
    reached = [(float(key[1][1]), value) for key, value in found.items() if key[0] == name]
    assert reached == sorted(reached)
    assert [value for _, value in reached] == sorted(value for _, value in reached)
    by_bound = dict(reached)
    # 900 ns, 3 ms and 1000 s
    assert by_bound[1.024e-06] == 1
    assert max(value for bound, value in reached if bound < 0.003) == 1
    assert min(value for bound, value in reached if bound > 0.005) == 2
    assert by_bound[float("inf")] == 3
    assert max(value for bound, value in reached if bound < 1000) == 2


def test_without_a_link_there_are_no_epochs():
    with metrics(0, lambda: Figures("starting", Counters()), ABOUT) as port:
        found = scrape(port)
    assert ("pp4_worker_epochs_left_ratio",) not in found
    assert found["pp4_worker_state", ("state", "starting")] == 1
    assert found["pp4_worker_wait_seconds_count",] == 0


def test_each_scrape_is_of_its_own_moment(counted):
    with metrics(0, lambda: Figures("serving", counted), ABOUT) as port:
        before = scrape(port)["pp4_worker_blocks_total",]
        counted.launched([1], captured=1)
        assert scrape(port)["pp4_worker_blocks_total",] == before + 1


def test_it_ends_with_the_block_and_leaves_no_thread():
    before = threading.active_count()
    with metrics(0, lambda: Figures("serving", Counters()), ABOUT) as port:
        assert threading.active_count() > before
    with pytest.raises(urllib.error.URLError):
        scrape(port)
    assert not [one for one in threading.enumerate() if not one.daemon and one.name != "MainThread"]
    assert threading.active_count() == before


def test_only_this_machine_can_ask():
    with metrics(0, lambda: Figures("serving", Counters()), ABOUT) as port:
        # every address of 127/8 is this machine's, and it listens on one of them alone
        with (
            pytest.raises(ConnectionRefusedError),
            socket.create_connection(("127.0.0.2", port), timeout=5),
        ):
            pass
        assert scrape(port)


def test_a_port_that_is_taken_is_refused():
    with (
        metrics(0, lambda: Figures("serving", Counters()), ABOUT) as port,
        pytest.raises(RefusedError) as caught,
        metrics(port, lambda: Figures("serving", Counters()), ABOUT),
    ):
        pass
    assert caught.value.refusal.code is Code.BAD_SETTING
    assert str(port) in caught.value.refusal.where


def test_the_log_has_the_same_figures(counted):
    told = []
    now = Figures("serving", counted, open_requests=6, cache_hits=8, epochs_left=0.75)

    async def main():
        task = asyncio.create_task(
            tell_figures(lambda event, fields: told.append((event, fields)), lambda: now, 0.001)
        )
        async with asyncio.timeout(20):
            while not told:
                await asyncio.sleep(0.001)
            # nothing changes, so nothing is said
            await asyncio.sleep(0.05)
            assert len(told) == 1
            counted.launched([5], captured=1)
            while len(told) < 2:
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    (event, fields), (_, later) = told
    assert event == "figures"
    assert fields == {
        "state": "serving",
        "blocks": 2,
        "rows": 3,
        "padded_rows": 2,
        "positions": 13,
        "replies": 3,
        "appends": 7,
        "wait_ns": 1_000_003_000_900,
        "refusals": {"CACHE_FULL": 4, "BAD_INPUT": 1},
        "open_requests": 6,
        "waiting": 0,
        "cache_hits": 8,
        "cache_misses": 0,
        "epochs_left": 0.75,
    }
    assert later["blocks"] == 3
