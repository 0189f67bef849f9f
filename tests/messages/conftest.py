"""What the tests of the message service share: one service for all of them, and clients with queues of their own."""

import itertools

import pytest
from service import installed, serving

from waylab.messages import Client

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def url():
    """Where the service is that all tests share."""
    with serving(postgres=installed()) as address:
        yield address


@pytest.fixture
def client(url):
    """A client that sends as alice."""
    with Client(url, sender="alice") as made:
        yield made


@pytest.fixture
def queue(client):
    """A queue that nobody else has."""
    name = f"q{next(NUMBERS)}"
    assert client.create_queue(name)
    return name
