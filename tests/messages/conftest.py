"""Fixtures of the message service's tests: one shared service, clients, and a new queue for each test."""

import itertools

import pytest
from service import installed, serving

from waylab.messages import Client

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def url():
    """The URL of the service that all tests share."""
    with serving(postgres=installed()) as address:
        yield address


@pytest.fixture
def client(url):
    """A client that sends as alice."""
    with Client(url, sender="alice") as made:
        yield made


@pytest.fixture
def queue(client):
    """A new queue."""
    name = f"q{next(NUMBERS)}"
    assert client.create_queue(name)
    return name
