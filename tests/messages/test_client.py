"""Tests the Python client with a live service, and with connections that break in every way."""

import threading
import time

import httpx
import pytest
from programs import free_ports

from waylab.messages import Client, InDoubtError, Outgoing, ProblemError, UnreachableError

STAGES = ["parse", "admit", "queue", "send", "backend", "reply", "total"]
BYTES = bytes(range(256))


def test_a_popped_message_equals_the_sent_one(client, queue):
    number = client.send(queue, BYTES, receiver="bob")
    peeked = client.peek(queue, receiver="bob")
    assert client.pop(queue, receiver="carol") is None
    popped = client.pop(queue, receiver="bob")
    assert popped == peeked and popped.body == BYTES
    assert (popped.id, popped.queue, popped.sender, popped.receiver) == (number, queue, "alice", "bob")
    assert abs(popped.sent_unix_us / 1e6 - time.time()) < 3600
    client.send(queue, "zwei Äpfel")
    popped = client.pop(queue, receiver="bob")
    assert (popped.text, popped.receiver) == ("zwei Äpfel", None)
    assert client.pop(queue, receiver="bob") is None


def test_queues_are_created_and_deleted(client, queue):
    assert not client.create_queue(queue)
    assert client.has_queue(queue) and queue in client.queues()
    client.send(queue, b"", receiver=f"r-{queue}")
    assert client.waiting_queues(f"r-{queue}") == [queue]
    client.delete_queue(queue)
    assert not client.has_queue(queue) and client.waiting_queues(f"r-{queue}") == []
    with pytest.raises(ProblemError) as caught:
        client.send(queue, b"x")
    assert (caught.value.type, caught.value.status, caught.value.retry_after_s) == (
        "unknown-queue",
        404,
        None,
    )
    with pytest.raises(ProblemError, match="name") as caught:
        client.create_queue("a/../b")
    assert caught.value.type == "invalid-name"


def test_batches_and_senders(url, client, queue):
    ids = client.send_batch(queue, ["one", Outgoing(BYTES, "bob"), Outgoing("three")])
    assert ids == sorted(ids) and len(set(ids)) == 3
    assert [message.id for message in client.peek_batch(10, queue, receiver="bob")] == ids
    sender = f"s-{queue}"
    with Client(url, sender=sender) as other:
        other.send(queue, "theirs")
        assert client.peek(sender=sender).text == "theirs"
        assert [message.text for message in client.pop_batch(5, sender=sender)] == ["theirs"]
        assert other.pop(sender=sender) is None
    popped = client.pop_batch(2, queue, receiver="bob", sender="alice")
    assert [message.body for message in popped] == [b"one", BYTES]
    assert [message.text for message in client.pop_batch(2, queue)] == ["three"]
    assert client.pop_batch(2, queue) == []


def test_received_messages_are_acknowledged_extended_or_nacked(client, queue):
    dead = f"{queue}-dead"
    client.create_queue(dead)
    assert not client.create_queue(queue, attempts=2, dead_letter_queue=dead, lease_s=60)
    assert client.queue(queue)["lease"] == "1m"
    numbers = client.send_batch(queue, ["a", "b", Outgoing("c", delay_s=3600)])
    first, second = client.receive(queue), client.receive(queue, lease_s=30, wait_s=5)
    assert [first.id, second.id] == numbers[:2] and (first.text, first.attempt) == ("a", 1)
    assert client.receive(queue) is None
    client.extend(second.lease_token, 90)
    client.nack(first.lease_token)
    with pytest.raises(ProblemError) as caught:
        client.acknowledge(first.lease_token)
    assert (caught.value.type, caught.value.status) == ("lease-expired", 410)
    again = client.receive(queue, wait_s=10)
    assert (again.id, again.attempt) == (first.id, 2)
    assert client.acknowledge_batch([again.lease_token, first.lease_token]) == [first.lease_token]
    client.acknowledge(second.lease_token)
    assert client.receive(queue) is None and client.queue(queue)["invisible"] == 1


def test_a_dead_letter_has_its_origin(client, queue):
    dead = f"{queue}-dead"
    client.create_queue(dead)
    client.create_queue(queue, attempts=1, dead_letter_queue=dead, backoff_s=60)
    assert client.queue(queue)["backoff"] == "1m"
    client.send(queue, "poison")
    received = client.receive(queue)
    assert received.dead_letter is None
    client.nack(received.lease_token)
    letter = client.receive(dead, wait_s=10)
    assert (letter.id, letter.dead_letter["queue"], letter.dead_letter["attempts"]) == (received.id, queue, 1)
    assert letter.dead_letter["reason"] == "nacked" and hash(letter)
    client.nack(letter.lease_token)
    assert [message.dead_letter for message in client.pop_batch(2, dead)] == [letter.dead_letter]


def test_a_send_with_a_key_is_done_once(client, queue):
    numbers = {client.send(queue, "x", key="k-1") for _ in range(3)}
    assert len(numbers) == 1 and client.pop(queue).id in numbers and client.pop(queue) is None
    assert client.send_batch(queue, ["y"], key="k-2") == client.send_batch(queue, ["y"], key="k-2")
    with pytest.raises(ProblemError, match="idempotency-key-reused"):
        client.send(queue, "other", key="k-1")


def test_a_long_poll_waits_for_a_message(url, client, queue):
    assert client.pop(queue, wait_s=0.05) is None
    assert client.pop_batch(3, queue, wait_s=0.05) == []

    def send():
        time.sleep(0.1)
        with Client(url, sender="bob") as other:
            other.send(queue, "at last")

    thread = threading.Thread(target=send)
    thread.start()
    assert client.pop(queue, wait_s=60).text == "at last"
    thread.join()


def test_every_reply_has_the_time_of_each_stage(client, queue):
    client.send(queue, b"x")
    times_s = client.stage_times_s
    assert list(times_s) == STAGES
    assert 0 < times_s["backend"] <= times_s["total"] < 60
    assert sum(times_s[stage] for stage in STAGES[:-1]) == pytest.approx(times_s["total"], abs=1e-5)


def test_an_unreachable_service_is_retried_and_then_reported():
    (port,) = free_ports(1)
    began_s = time.monotonic()
    with (
        Client(f"http://127.0.0.1:{port}", retry_for_s=0.3) as client,
        pytest.raises(UnreachableError, match="unreachable"),
    ):
        client.queues()
    assert time.monotonic() - began_s >= 0.1


class Scripted(httpx.BaseTransport):
    """A transport that returns scripted replies."""

    def __init__(self, *script):
        self.script = list(script)
        self.asked = 0

    def handle_request(self, request):
        self.asked += 1
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        status, kind, headers = step
        if kind is None:
            return httpx.Response(status, headers=headers, json={"id": 7, "not_acknowledged": []})
        document = {"type": f"urn:waystage:problem:{kind}", "title": "T", "status": status, "detail": "d"}
        headers = headers | {"content-type": "application/problem+json"}
        return httpx.Response(status, headers=headers, json=document)


def scripted(*script):
    transport = Scripted(*script)
    return transport, Client("http://service", sender="alice", transport=transport)


def test_requests_that_were_not_applied_are_retried():
    again = {"retry-after": "0"}
    steps = [(503, "overloaded", again), httpx.ConnectError("no"), (503, "database-down", again)]
    transport, client = scripted(*steps, (201, None, {"server-timing": "total;dur=2"}))
    assert client.send("q", b"x") == 7
    assert transport.asked == 4 and client.stage_times_s == {"total": 0.002}


@pytest.mark.parametrize(
    "step",
    [
        (503, "in-doubt", {"retry-after": "0"}),
        httpx.ReadTimeout("late"),
        httpx.RemoteProtocolError("gone"),
        httpx.WriteError("gone"),
    ],
)
def test_requests_in_doubt_are_never_retried(step):
    transport, client = scripted(step)
    with pytest.raises(InDoubtError, match="POST http://service/v1/queues/q"):
        client.pop("q")
    assert transport.asked == 1


def test_a_deletion_in_doubt_is_not_retried_whatever_the_name_of_the_queue():
    transport, client = scripted(httpx.ReadError("gone"))
    with pytest.raises(InDoubtError):
        client.delete_queue("to-acknowledge")
    assert transport.asked == 1


def test_a_send_with_a_key_is_retried_in_doubt():
    transport, client = scripted(httpx.ReadError("gone"), (503, "in-doubt", {}), (201, None, {}))
    assert client.send("q", b"x", key="k") == 7 and transport.asked == 3


def test_an_acknowledgement_is_retried_in_doubt():
    lost = [httpx.ReadError("gone"), (503, "in-doubt", {})]
    transport, client = scripted(*lost, (204, None, {}))
    client.acknowledge("token")
    assert transport.asked == 3
    transport, client = scripted(*lost, (200, None, {}))
    assert client.acknowledge_batch(["token"]) == [] and transport.asked == 3
    transport, client = scripted(*lost, (410, "lease-expired", {}))
    with pytest.raises(ProblemError, match="lease-expired"):
        client.acknowledge("token")
    assert transport.asked == 3


@pytest.mark.parametrize("call", ["extend", "nack"])
def test_extensions_and_nacks_in_doubt_are_never_retried(call):
    transport, client = scripted(httpx.ReadError("gone"))
    with pytest.raises(InDoubtError):
        getattr(client, call)("token")
    assert transport.asked == 1


def test_the_time_for_a_reply_includes_the_wait_of_a_poll():
    seen = []

    class Recording(httpx.BaseTransport):
        def handle_request(self, request):
            wait_s = int(request.url.params.get("wait", "0ms").removesuffix("ms")) / 1000
            seen.append((request.extensions["timeout"]["read"], wait_s))
            return httpx.Response(200, json={"messages": [], "queues": []})

    client = Client("http://service", transport=Recording(), timeout_s=7)
    client.queues()
    client.pop_batch(1, "q", wait_s=0.3)
    assert [wait_s > 0 for _, wait_s in seen[:2]] == [False, True]
    for read_s, wait_s in seen:
        # The wait is sent in whole milliseconds.
        assert read_s == pytest.approx(7 + wait_s, abs=0.0015)


def test_only_the_service_itself_can_guarantee_that_a_request_was_not_applied():
    class Proxy(httpx.BaseTransport):
        def handle_request(self, request):
            return httpx.Response(503, headers={"retry-after": "0"}, text="<h1>gateway</h1>")

    client = Client("http://service", transport=Proxy())
    with pytest.raises(ProblemError, match="gateway") as caught:
        client.queues()
    assert (caught.value.type, caught.value.status, caught.value.retry_after_s) == ("", 503, None)


def test_the_last_refusal_is_raised():
    transport, client = scripted((503, "shutting-down", {"retry-after": "3600"}))
    with pytest.raises(ProblemError) as caught:
        client.queues()
    assert caught.value.type == "shutting-down" and transport.asked == 1


class Waiting(httpx.BaseTransport):
    """A service without messages whose longest wait is half a second by default."""

    def __init__(self, longest_ms=500):
        self.longest_ms = longest_ms
        self.waits_ms = []

    def handle_request(self, request):
        self.waits_ms.append(int(request.url.params.get("wait", "0ms").removesuffix("ms")))
        if self.waits_ms[-1] > self.longest_ms:
            document = {
                "type": "urn:waystage:problem:invalid-request",
                "title": "T",
                "status": 400,
                "detail": "d",
            }
            return httpx.Response(400, json=document | {"longest_wait_ms": self.longest_ms})
        time.sleep(self.waits_ms[-1] / 1000)
        return httpx.Response(204)


def test_a_wait_is_split_only_where_the_service_limits_it():
    transport = Waiting()
    client = Client("http://service", transport=transport)
    assert client.pop("q", wait_s=1.2) is None
    assert transport.waits_ms[0] in range(1100, 1201) and transport.waits_ms[1:3] == [500, 500]
    assert len(transport.waits_ms) <= 5 and all(wait_ms <= 500 for wait_ms in transport.waits_ms[1:])
    asked = len(transport.waits_ms)
    assert client.pop("q", wait_s=0.6) is None
    assert transport.waits_ms[asked] == 500, "the client remembers the limit"


@pytest.mark.parametrize("longest_ms", [0, 1])
def test_a_wait_at_a_service_without_long_polls_does_not_flood_it(longest_ms):
    transport = Waiting(longest_ms)
    client = Client("http://service", transport=transport)
    assert client.pop("q", wait_s=0.5) is None
    assert len(transport.waits_ms) <= 10


def test_the_service_states_its_longest_wait(url):
    reply = httpx.post(f"{url}/v1/queues/q/messages:pop?wait=61s")
    assert (reply.status_code, reply.json()["longest_wait_ms"]) == (400, 60_000)
