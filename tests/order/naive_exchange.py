"""A second, naive model of a healthy launch: every store, landing, load and barrier is a step.

It shares nothing with pp4's model but the switches of a protocol, leaves no interleaving out, and
knows no faults.  It answers one question: can a rank read anything but its peer's half of the row?
Both ranks run the same program, so of two states that differ in which rank is which, one is looked
at.
"""

BAR = ("bar",)


def programs(protocol, rows):
    """The two warps of one rank as flat lists of operations."""
    first, second = [], []
    for e in range(1, rows + 1):
        slot = e % protocol.slots
        wait_ack = [("wait", "ack", e - protocol.slots)] if protocol.waits_ack else []
        bar = [BAR] if protocol.ack_barrier else []
        store = [("store", ("data", slot, 0), e)]
        if protocol.store_barrier:
            store.append(BAR)
        flag = [("release" if protocol.flag_release else "store", ("flag", slot), e)]
        body = store + flag if protocol.flag_after_data else flag + store
        read_bar = [BAR] if protocol.read_barrier else []
        consumed = [BAR] if protocol.consumed_barrier else []
        first += [*wait_ack, *bar, *body, ("wait", ("flag", slot), e), *read_bar]
        first += [("read", ("data", slot, 0), e), *consumed, ("release", "ack", e)]
        second += [*bar, ("store", ("data", slot, 1), e), *([BAR] * protocol.store_barrier)]
        second += [*read_bar, ("read", ("data", slot, 1), e), *consumed]
        if not protocol.consumed_barrier:  # outputs and stamp still join the warps
            first.append(BAR)
            second.append(BAR)
    return tuple(first), tuple(second)


def _issue(pending, warp, op, number):
    """A store goes in flight: a release behind all that its warp saw, a plain one behind nothing
    but older stores to the same place."""
    kind, place, value = op
    if kind == "release":
        behind = frozenset(s[0] for s in pending if s[3] == warp or s[4])
    else:
        behind = frozenset(s[0] for s in pending if s[1] == place)
    return (*pending, (number, place, value, warp, False, behind))


def _steps(state, warps):
    """Every next state, and whether the step read something wrong.

    ``memory`` is what has landed at this rank, ``pending`` what it has in flight to the other.
    """
    for who in (0, 1):
        pcs, memory, pending, issued = state[who]
        there = state[1 - who]

        def after(mine, other=None, who=who, there=there):
            other = there if other is None else other
            return (mine, other) if who == 0 else (other, mine)

        for store in pending:
            if not store[5] & {s[0] for s in pending}:
                left = tuple(s for s in pending if s is not store)
                landed = tuple(sorted({**dict(there[1]), store[1]: store[2]}.items(), key=str))
                other = (there[0], landed, there[2], there[3])
                yield after((pcs, memory, left, issued), other), False
        ops = [warps[w][pcs[w]] if pcs[w] < len(warps[w]) else None for w in (0, 1)]
        if ops == [BAR, BAR]:
            seen = tuple((*s[:4], True, s[5]) for s in pending)
            yield after(((pcs[0] + 1, pcs[1] + 1), memory, seen, issued)), False
        for warp, op in enumerate(ops):
            if op in (None, BAR):
                continue
            on = (pcs[0] + (warp == 0), pcs[1] + (warp == 1))
            held = dict(memory).get(op[1], 0)
            if op[0] in ("store", "release"):
                flying = _issue(pending, warp, op, issued)
                yield after((on, memory, flying, issued + 1)), False
            elif op[0] == "read" or held >= op[2]:
                yield after((on, memory, pending, issued)), op[0] == "read" and held != op[2]


def reads_wrong(protocol, rows):
    """Whether any interleaving reads a wrong half; and how many states it took to know."""
    warps = programs(protocol, rows)
    start = (((0, 0), (), (), 0),) * 2
    seen, todo = {start}, [start]
    while todo:
        for state, wrong in _steps(todo.pop(), warps):
            if wrong:
                return True, len(seen)
            if state not in seen and state[::-1] not in seen:
                seen.add(state)
                todo.append(state)
    return False, len(seen)
