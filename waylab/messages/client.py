"""The client: one method for each operation of the service. It repeats only what was certainly not done."""

import json
import random
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from waylab.messages.errors import InDoubtError, MessagesError, ProblemError, UnreachableError
from waylab.messages.message import Message, Outgoing, duration, of_document, of_headers, stage_times_s

# A long poll is asked for in pieces, so that the limit of the service does not matter.
_POLL_PIECE_S = 20.0
_PROBLEM = "urn:waystage:problem:"
_NOT_REACHED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_FIRST_PAUSE_S = 0.1


class Client:
    """A client of one service, with connections that are kept.

    Args:
        url: of the service, such as `http://127.0.0.1:8080`.
        sender: who sends; needed to send where the service has no tokens.
        token: a bearer token, where the service has tokens.
        timeout_s: how long a reply may take, besides the time that a long poll was allowed to.
        retry_for_s: how long to go on trying when nobody listens or when the service has said that nothing was done and
            that it may work later.
        transport: of httpx, for tests.

    Every method raises `ProblemError` when the service refuses, `UnreachableError` when nobody listens and
    `InDoubtError` when the connection broke before the reply was there. What is in doubt is not repeated, for a message
    may have been stored, or taken out; except a send with a key.

    """

    def __init__(
        self,
        url: str,
        *,
        sender: str | None = None,
        token: str | None = None,
        timeout_s: float = 10.0,
        retry_for_s: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {} if sender is None else {"Waystage-Sender": sender}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._timeout_s = timeout_s
        self._retry_for_s = retry_for_s
        # To load every authority takes longer than a hundred requests, and is of no use without TLS.
        is_secret = not url.startswith("http://")
        self._http = httpx.Client(base_url=url, headers=headers, transport=transport, verify=is_secret)
        #: Of the last reply: the time of each stage in the service, and `total`, in seconds.
        self.stage_times_s: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def create_queue(
        self,
        queue: str,
        *,
        attempts: int | None = None,
        dead_letters: str | None = None,
        expiry_s: float | None = None,
        lease_s: float | None = None,
    ) -> bool:
        """Create a queue; whether it is new. With any setting, all settings of a queue that is there are replaced."""
        settings = {
            "attempts": attempts,
            "dead_letters": dead_letters,
            "expiry": duration(expiry_s),
            "lease": duration(lease_s),
        }
        given = {name: value for name, value in settings.items() if value is not None}
        reply = self._ask("PUT", _queue(queue), document=given or None)
        return reply.status_code == httpx.codes.CREATED

    def queue(self, queue: str) -> dict[str, Any]:
        """The settings of a queue, and how many messages wait in it and are held."""
        return self._ask("GET", _queue(queue)).json()

    def delete_queue(self, queue: str) -> None:
        """Delete a queue with its messages."""
        self._ask("DELETE", _queue(queue))

    def has_queue(self, queue: str) -> bool:
        """Whether the queue is there."""
        try:
            self._ask("GET", _queue(queue))
        except ProblemError as error:
            if error.type != "unknown-queue":
                raise
            return False
        return True

    def queues(self) -> list[str]:
        """The names of all queues."""
        return self._ask("GET", "/v1/queues").json()["queues"]

    def waiting_queues(self, receiver: str) -> list[str]:
        """The queues that hold a message addressed to this receiver."""
        return self._ask("GET", f"/v1/receivers/{_quoted(receiver)}/queues").json()["queues"]

    def send(
        self,
        queue: str,
        body: bytes | str,
        *,
        receiver: str | None = None,
        delay_s: float | None = None,
        expiry_s: float | None = None,
        key: str | None = None,
    ) -> int:
        """Send a message to one receiver, or to anyone. It is committed when this returns; gives its id.

        With a key, the service stores it once however often it is sent, so what is in doubt is sent again, too.
        """
        parameters = {"to": receiver, "delay": duration(delay_s), "expiry": duration(expiry_s)}
        return self._ask(
            "POST", f"{_queue(queue)}/messages", parameters, content=_bytes(body), key=key
        ).json()["id"]

    def send_batch(
        self, queue: str, messages: Iterable[Outgoing | bytes | str], *, key: str | None = None
    ) -> list[int]:
        """Send several messages, all or none; gives their ids in the same order. With a key as in `send`."""
        outgoing = (message if isinstance(message, Outgoing) else Outgoing(message) for message in messages)
        document = {"messages": [message.document() for message in outgoing]}
        return self._ask("POST", f"{_queue(queue)}/messages:batch", document=document, key=key).json()["ids"]

    def peek(
        self, queue: str | None = None, *, receiver: str | None = None, sender: str | None = None
    ) -> Message | None:
        """Read the oldest message and leave it. Without a queue, that of a sender over all queues."""
        return _one(self._ask("GET", f"{_scope(queue)}messages/head", {"for": receiver, "from": sender}))

    def peek_batch(
        self,
        most: int,
        queue: str | None = None,
        *,
        receiver: str | None = None,
        sender: str | None = None,
    ) -> list[Message]:
        """Read the oldest messages, up to so many, and leave them."""
        parameters = {"for": receiver, "from": sender, "max": str(most)}
        return _several(self._ask("GET", f"{_scope(queue)}messages/head", parameters))

    def pop(
        self,
        queue: str | None = None,
        *,
        receiver: str | None = None,
        sender: str | None = None,
        wait_s: float = 0.0,
    ) -> Message | None:
        """Read the oldest message and remove it; wait for one up to `wait_s`, which needs a queue."""
        parameters = {"for": receiver, "from": sender}
        return _one(self._poll(f"{_scope(queue)}messages:pop", parameters, wait_s))

    def pop_batch(
        self,
        most: int,
        queue: str | None = None,
        *,
        receiver: str | None = None,
        sender: str | None = None,
        wait_s: float = 0.0,
    ) -> list[Message]:
        """Read the oldest messages, up to so many, and remove them; wait for the first up to `wait_s`."""
        parameters = {"for": receiver, "from": sender, "max": str(most)}
        return _several(self._poll(f"{_scope(queue)}messages:pop", parameters, wait_s))

    def receive(
        self,
        queue: str,
        *,
        receiver: str | None = None,
        sender: str | None = None,
        wait_s: float = 0.0,
        lease_s: float | None = None,
    ) -> Message | None:
        """Read the oldest message under a lease: if it is not acknowledged until the lease ends, it comes back."""
        parameters = {"for": receiver, "from": sender, "lease": duration(lease_s)}
        return _one(self._poll(f"{_queue(queue)}/messages:receive", parameters, wait_s))

    def acknowledge(self, lease: str) -> None:
        """Say that a message is done with. It is a `ProblemError` of type `lease-expired` when the lease has ended."""
        self._ask("POST", f"/v1/leases/{_quoted(lease)}/acknowledge")

    def acknowledge_batch(self, leases: Iterable[str]) -> list[str]:
        """Say that several messages are done with; gives the leases that had ended."""
        document = {"leases": list(leases)}
        return self._ask("POST", "/v1/leases:acknowledge", document=document).json()["not_acknowledged"]

    def extend(self, lease: str, lease_s: float | None = None) -> None:
        """Make a lease hold for so long from now on."""
        self._ask("POST", f"/v1/leases/{_quoted(lease)}/extend", {"lease": duration(lease_s)})

    def give_back(self, lease: str, delay_s: float | None = None) -> None:
        """Give a message back, so that others may have it, at once or after a while."""
        self._ask("POST", f"/v1/leases/{_quoted(lease)}/return", {"delay": duration(delay_s)})

    def _poll(self, path: str, parameters: dict[str, str | None], wait_s: float) -> httpx.Response:
        """Ask for messages, again and again until there is one or the time is over."""
        deadline_s = time.monotonic() + wait_s
        while True:
            piece_s = min(max(deadline_s - time.monotonic(), 0.0), _POLL_PIECE_S)
            piece_ms = int(piece_s * 1000)
            asked = parameters | ({"wait": f"{piece_ms}ms"} if piece_ms else {})
            reply = self._ask("POST", path, asked, wait_s=piece_s)
            is_empty = reply.status_code == httpx.codes.NO_CONTENT or (
                "max" in parameters and not reply.json()["messages"]
            )
            if not is_empty or time.monotonic() >= deadline_s:
                return reply

    def _ask(
        self,
        method: str,
        path: str,
        parameters: dict[str, str | None] | None = None,
        *,
        content: bytes | None = None,
        document: dict[str, Any] | None = None,
        key: str | None = None,
        wait_s: float = 0.0,
    ) -> httpx.Response:
        """Do one request; try again as long as nothing was done, or can be done twice, and there is time."""
        headers = {}
        if document is not None:
            content = json.dumps(document).encode()
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        request = self._http.build_request(
            method,
            path,
            params={name: value for name, value in (parameters or {}).items() if value is not None},
            content=content,
            headers=headers,
            timeout=self._timeout_s + wait_s,
        )
        deadline_s = time.monotonic() + self._retry_for_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return self._once(request)
            except (UnreachableError, InDoubtError) as error:
                if isinstance(error, InDoubtError) and key is None:
                    raise
                wanted_s = pause_s
                pause_s = min(2 * pause_s, 1.0)
                if time.monotonic() + wanted_s > deadline_s:
                    raise
            except ProblemError as error:
                # Those who were refused together shall not come back together.
                wanted_s = (error.retry_after_s or 0.0) * random.uniform(1.0, 1.2)
                if error.retry_after_s is None or time.monotonic() + wanted_s > deadline_s:
                    raise
            time.sleep(wanted_s)

    def _once(self, request: httpx.Request) -> httpx.Response:
        try:
            reply = self._http.send(request)
        except _NOT_REACHED as error:
            raise UnreachableError(f"{request.url}: cannot be reached: {error}") from error
        except httpx.TransportError as error:
            what = f"{request.method} {request.url}: no reply: {type(error).__name__} {error}"
            raise InDoubtError(f"{what}; it may or may not have been done") from error
        self.stage_times_s = stage_times_s(reply.headers.get("server-timing", ""))
        if reply.is_success:
            return reply
        raise _problem(reply)


def _problem(reply: httpx.Response) -> MessagesError:
    """What a reply says that is not a success."""
    try:
        document: dict[str, Any] = reply.json()
        kind = str(document["type"]).removeprefix(_PROBLEM)
        title, detail = str(document["title"]), str(document["detail"])
    except (ValueError, KeyError, TypeError):
        kind, title, detail = "", reply.reason_phrase, f"{reply.url}: {reply.text[:200]}"
    if kind == "in-doubt":
        return InDoubtError(f"{reply.request.method} {reply.url}: {detail}")
    try:
        retry_after_s = float(reply.headers["retry-after"])
    except (KeyError, ValueError):
        retry_after_s = None
    # Only the service itself can promise that nothing was done, and not whatever stands before it.
    return ProblemError(kind, reply.status_code, title, detail, retry_after_s if kind else None)


def _one(reply: httpx.Response) -> Message | None:
    if reply.status_code == httpx.codes.NO_CONTENT:
        return None
    return of_headers(reply.headers, reply.content)


def _several(reply: httpx.Response) -> list[Message]:
    return [of_document(document) for document in reply.json()["messages"]]


def _scope(queue: str | None) -> str:
    return "/v1/" if queue is None else f"{_queue(queue)}/"


def _queue(queue: str) -> str:
    return f"/v1/queues/{_quoted(queue)}"


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _bytes(body: bytes | str) -> bytes:
    return body.encode() if isinstance(body, str) else body
