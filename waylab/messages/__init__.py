"""A Python client of the message service (docs/messages.md). It does not depend on the lab.

with Client("http://127.0.0.1:8080", sender="alice") as client:
    client.create_queue("orders")
    client.send("orders", "two apples", receiver="bob")
    message = client.pop("orders", receiver="bob", wait_s=5)
"""

from waylab.messages.client import Client
from waylab.messages.errors import InDoubtError, MessagesError, ProblemError, UnreachableError
from waylab.messages.message import Message, Outgoing

__all__ = [
    "Client",
    "InDoubtError",
    "Message",
    "MessagesError",
    "Outgoing",
    "ProblemError",
    "UnreachableError",
]
