"""The program that emulates links, without namespaces: socket pairs stand for the TAP devices."""

import mmap
import socket
import time
from itertools import pairwise

import pytest

from waylab.testbed.netns.link_process import COUNTERS, FILE_BYTES, NAMES, Direction, Way, read_counters

FRAME = bytes(1000)


class ALink:
    """One direction, with the sockets of both ends."""

    def __init__(self, **settings):
        self.near, source = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        target, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sockets = [self.near, source, target, self.far]
        for one in self.sockets:
            one.setblocking(False)
        self.way = Way(Direction(**settings), source.fileno(), target.fileno(), seed=1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.sockets:
            one.close()

    def counted(self):
        return dict(zip(NAMES, self.way.counted, strict=True))

    def send(self, count, frame=FRAME):
        """Send frames and return the time from the first to each due time, in ms."""
        before_ns = time.monotonic_ns()
        for _ in range(count):
            self.near.send(frame)
            self.way.receive()
        return [(due_ns - before_ns) * 1e-6 for due_ns, _ in self.way.frames]


def test_a_frame_leaves_after_the_delay_and_not_before():
    with ALink(delay_ms=30.0) as link:
        (due_ms,) = link.send(1)
        assert 30.0 <= due_ms
        link.way.send_due()
        with pytest.raises(BlockingIOError):
            link.far.recv(2000)
        time.sleep(0.05)
        link.way.send_due()
        assert link.far.recv(2000) == FRAME
        counted = link.counted()
        assert (counted["frames"], counted["bytes"], counted["late_frames"]) == (1, 1000, 1)
        assert counted["late_max_ns"] == counted["late_sum_ns"] > 0


def test_the_rate_spaces_frames_after_the_delay():
    with ALink(delay_ms=5.0, rate_mbit=0.08) as link:
        due_ms = link.send(10)
    # 1000 bytes take 100 ms at 0.08 Mbit/s. Gaps are between due times, so a late frame does not delay the next.
    assert due_ms[0] >= 105.0
    assert [later - sooner for sooner, later in pairwise(due_ms)] == pytest.approx([100.0] * 9)


def test_frames_that_do_not_fit_are_dropped_and_counted():
    with ALink(rate_mbit=0.008, queue_bytes=3000) as link:
        # A frame takes a second, so that none leaves during the test. One is being sent, three wait.
        link.send(10)
        assert len(link.way.frames) == 4 and link.counted()["dropped"] == 6


def test_losses_have_the_share_that_was_set():
    with ALink(loss=0.2) as link:
        link.send(2000, b"x")
        assert 300 < link.counted()["lost"] < 500
        assert len(link.way.frames) == 2000 - link.counted()["lost"]


def test_a_target_that_is_down_loses_the_frame_and_not_the_program():
    with ALink() as link:
        link.far.close()
        link.send(1)
        link.way.send_due()
        assert link.counted()["dropped"] == 1


def test_counters_are_read_from_the_file(tmp_path):
    path = tmp_path / "counters"
    with path.open("w+b") as file:
        file.truncate(FILE_BYTES)
        with mmap.mmap(file.fileno(), FILE_BYTES) as counters:
            COUNTERS.pack_into(counters, COUNTERS.size, *range(1, 8))
            up, down = read_counters(path)
    assert set(up.values()) == {0} and down == dict(zip(NAMES, range(1, 8), strict=True))
