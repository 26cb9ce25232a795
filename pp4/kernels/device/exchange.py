"""The words that cross between ranks: where they lie, how they are released, how long is waited.

A workspace is one array of int64 words that both ranks map; ``rows`` is its capacity:

    inbox   [rows][2 slots][32]   candidates, written by the peer
    flag    [rows][2 slots]       epoch of the message in the slot, written by the peer
    ack     [rows]                last epoch that the peer consumed, written by the peer
    error   [8]                   0: any; 1..5: one word per fault, written by the peer

One error word per fault keeps the precedence without a read-modify-write across the link.  On a GPU
the release store and the acquire loads are inline assembly: a Triton atomic with release order
would be a read-modify-write on the peer.  The interpreter has no assembly and runs the plain path;
its stores stay in program order on the machines that pp4 rehearses on (x86-64).

Every wait is decided by one thread and handed to the block through shared memory, so that all
warps leave it with the same verdict.
"""

import triton
import triton.language as tl

from pp4.kernels import layout
from pp4.kernels.faults import Fault

SLOTS = tl.constexpr(layout.SLOTS)

_READY = tl.constexpr(0)
_EXPIRED = tl.constexpr(1)
_AHEAD = tl.constexpr(2)
_STICKY = tl.constexpr(3)

_PEER_TIMEOUT = tl.constexpr(int(Fault.PEER_TIMEOUT))
_PROTOCOL = tl.constexpr(int(Fault.PROTOCOL))
_GRAVEST = tl.constexpr(int(max(Fault)))


@triton.jit
def as_words(address):
    """int64 address -> pointer to int64 words.

    The interpreter types an argument by its value, and an address below 2**31 is an int32 to it.
    """
    return address.to(tl.int64).to(tl.pointer_type(tl.int64))


@triton.jit
def inbox_at(workspace, row, epoch):
    """Pointer to the 32 words of the slot that an epoch uses."""
    return as_words(workspace) + (row * SLOTS + (epoch & 1)) * 32


@triton.jit
def flag_at(workspace, rows, row, epoch):
    """Pointer to the flag of the slot that an epoch uses."""
    return as_words(workspace) + rows * (SLOTS * 32) + row * SLOTS + (epoch & 1)


@triton.jit
def ack_at(workspace, rows, row):
    """Pointer to the acknowledgement of a row."""
    return as_words(workspace) + rows * (SLOTS * 32 + SLOTS) + row


@triton.jit
def error_at(workspace, rows):
    """Pointer to the error words."""
    return as_words(workspace) + rows * (SLOTS * 32 + SLOTS + 1)


@triton.jit
def release(pointer, value, INTERPRETED: tl.constexpr):
    """Publish ``value`` system-wide after everything that this block stored before."""
    tl.debug_barrier()
    if INTERPRETED:
        tl.store(pointer, value)
    else:
        tl.inline_asm_elementwise(
            """
            {
            .reg .pred first;
            .reg .u32 thread;
            mov.u32 thread, %tid.x;
            setp.eq.u32 first, thread, 0;
            @first st.release.sys.global.s64 [$1], $2;
            mov.u32 $0, 0;
            }
            """,
            "=r,l,l",
            [pointer.to(tl.int64), value],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def deadline_after(budget, INTERPRETED: tl.constexpr):
    """The GPU's own time, in nanoseconds, at which a budget from now is spent; 0 interpreted.

    It differs from thread to thread and is used by thread 0 alone.
    """
    if INTERPRETED:
        return budget * 0
    else:
        return budget + tl.inline_asm_elementwise(
            "mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
        )


@triton.jit
def _poll(pointer, low, high, own_error, peer_error, deadline, max_polls):
    """The bounded wait on a GPU: thread 0 polls, the block gets its verdict and nanoseconds.

    The three words are on their way together, so that a look takes as long as one load: the two
    sticky ones are read without an order, and again with one where either is set.  The clock is
    read while the verdict is on its way, and nobody waits for it but the barrier that is there
    anyway.
    """
    return tl.inline_asm_elementwise(
        """
        {
        .reg .pred stop;
        .reg .u32 thread, verdict;
        .reg .s64 word, own, told, now, polls, entered;
        .shared .align 8 .s64 shared_waited;
        .shared .align 4 .u32 shared_verdict;
        mov.u32 thread, %tid.x;
        setp.ne.u32 stop, thread, 0;
        @stop bra SHARE;
        mov.u64 entered, %globaltimer;
        mov.s64 polls, 0;
        POLL:
        ld.relaxed.gpu.global.s64 own, [$5];
        ld.relaxed.sys.global.s64 told, [$6];
        ld.acquire.sys.global.s64 word, [$2];
        or.b64 own, own, told;
        setp.ne.s64 stop, own, 0;
        @stop bra STICKY;
        mov.u32 verdict, 2;
        setp.gt.s64 stop, word, $4;
        @stop bra TELL;
        mov.u32 verdict, 0;
        setp.ge.s64 stop, word, $3;
        @stop bra TELL;
        mov.u32 verdict, 1;
        add.s64 polls, polls, 1;
        setp.ge.s64 stop, polls, $8;
        @stop bra TELL;
        mov.u64 now, %globaltimer;
        setp.lt.s64 stop, now, $7;
        @stop bra POLL;
        bra TELL;
        STICKY:
        ld.acquire.gpu.global.s64 own, [$5];
        ld.acquire.sys.global.s64 told, [$6];
        mov.u32 verdict, 3;
        TELL:
        mov.u64 now, %globaltimer;
        st.shared.u32 [shared_verdict], verdict;
        sub.s64 now, now, entered;
        st.shared.s64 [shared_waited], now;
        SHARE:
        bar.sync 0;
        ld.shared.u32 $0, [shared_verdict];
        ld.shared.s64 $1, [shared_waited];
        bar.sync 0;
        }
        """,
        "=r,=l,l,l,l,l,l,l,l",
        [
            pointer.to(tl.int64),
            low,
            high,
            own_error.to(tl.int64),
            peer_error.to(tl.int64),
            deadline,
            max_polls,
        ],
        dtype=(tl.int32, tl.int64),
        is_pure=False,
        pack=1,
    )


@triton.jit
def _poll_interpreted(pointer, low, high, own_error, peer_error, max_polls):
    """The same wait by plain loads, bounded by their count; -> (verdict, polls that are left)."""
    verdict = _EXPIRED
    polls = 0
    while (verdict == _EXPIRED) & (polls < max_polls):
        own = tl.load(own_error, volatile=True)
        peer = tl.load(peer_error, volatile=True)
        word = tl.load(pointer, volatile=True)
        if (own != 0) | (peer != 0):
            verdict = _STICKY
        elif word > high:
            verdict = _AHEAD
        elif word >= low:
            verdict = _READY
        polls += 1
    return verdict, max_polls - polls


@triton.jit
def sticky(own_error, peer_error):
    """The gravest fault that either word names; PROTOCOL where words are set and name none.

    Only for words of which one is set: the answer is never "no fault".
    """
    fault = tl.arange(0, 8)
    named = (tl.load(peer_error + fault, volatile=True) != 0) & (fault > 0) & (fault <= _GRAVEST)
    theirs = tl.max(tl.where(named, fault, 0), 0)
    own = tl.load(own_error, volatile=True).to(tl.int32)
    gravest = tl.maximum(theirs, own)
    return tl.where((gravest > 0) & (gravest <= _GRAVEST), gravest, _PROTOCOL)


@triton.jit
def wait(pointer, low, high, own_error, peer_error, bounds, INTERPRETED: tl.constexpr):
    """Wait until a word lies in low..high; -> (0 or the fault that ended it, polls left, waited).

    Sticky words end it before the word is looked at; a word above ``high`` is PROTOCOL.  What was
    waited is the time from here to the verdict: nanoseconds on a GPU, polls in the interpreter.

    bounds: (deadline, polls at most); what is left of them bounds the next wait of the row, so
    that a row never spends more than one budget.
    """
    deadline, polls = bounds
    if INTERPRETED:
        verdict, left = _poll_interpreted(pointer, low, high, own_error, peer_error, polls)
        waited = polls - left
        polls = left
    else:
        verdict, waited = _poll(pointer, low, high, own_error, peer_error, deadline, polls)
    fault = 0
    if verdict == _EXPIRED:
        fault = _PEER_TIMEOUT
    elif verdict == _AHEAD:
        fault = _PROTOCOL
    elif verdict == _STICKY:
        fault = sticky(own_error, peer_error)
    return fault, polls, waited


@triton.jit
def raise_fault(fault, own_error, peer_error, PAIRED: tl.constexpr, INTERPRETED: tl.constexpr):
    """Set the sticky words: the own one by a local maximum, the peer's by plain stores."""
    tl.debug_barrier()
    tl.atomic_max(own_error, fault.to(tl.int64), sem="acq_rel", scope="gpu")
    if PAIRED:
        tl.store(peer_error + fault, tl.full([], 1, tl.int64))
        release(peer_error, fault.to(tl.int64), INTERPRETED)
