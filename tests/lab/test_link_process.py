"""The counters of the program that emulates links. crates/link tests the program itself."""

from waylab.testbed.netns.link_process import COUNTERS, NAMES, read_counters


def test_counters_are_read_from_the_file(tmp_path):
    path = tmp_path / "counters"
    path.write_bytes(COUNTERS.pack(*[0] * 7) + COUNTERS.pack(*range(1, 8)))
    up, down = read_counters(path)
    assert set(up.values()) == {0} and down == dict(zip(NAMES, range(1, 8), strict=True))
