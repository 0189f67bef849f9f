"""The pages on models show what the code computes. WAYSTAGE_UPDATE_GOLDEN=1 writes the computed parts anew."""

import pytest
from pages import check_page, parts, textbook_throughput

from waylab.models import ClosedMMc


def test_the_page_shows_what_the_code_computes():
    check_page(parts())


def test_the_textbook_recursion_is_right_while_it_is_small():
    """The error that the page shows is therefore rounding, not a mistake in the recursion."""
    for clients in (1, 5, 20):
        assert textbook_throughput(clients, 8, 4.0, 10.0) == pytest.approx(
            ClosedMMc(clients, 8, 4.0, 10.0).throughput_per_s, rel=1e-9
        )
    assert textbook_throughput(80, 8, 4.0, 10.0) < 0
    assert textbook_throughput(192, 64, 0.0045, 0.0012) < 14222.2 / 2
