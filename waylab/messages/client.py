"""The client, with one method for each operation. It retries only requests that were certainly not applied."""

import json
import math
import random
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from waylab.messages.errors import InDoubtError, MessagesError, ProblemError, UnreachableError
from waylab.messages.message import Message, Outgoing, duration, of_document, of_headers, stage_times_s

_PROBLEM = "urn:waystage:problem:"
_NOT_REACHED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_FIRST_PAUSE_S = 0.1


class Client:
    """A client of one service. It keeps its connections open.

    Args:
        url: the service, for example `http://127.0.0.1:8080`.
        sender: the sender of messages; required to send if the service has no tokens.
        token: a bearer token, if the service has tokens.
        timeout_s: the longest time until a reply, in addition to the wait of a long poll.
        retry_for_s: how long to retry while the service is unreachable or reports a temporary problem.
        transport: an httpx transport, for tests.

    Every method raises `ProblemError` if the service returns a problem, `UnreachableError` if it cannot be reached and
    `InDoubtError` if the outcome is unknown. A request in doubt is not retried, because it may have stored or removed
    a message. A send with an idempotency key is retried.

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
        # The service's limit of a wait, as soon as it has refused a longer one.
        self._longest_wait_s = math.inf
        # Loading all certificate authorities takes longer than a hundred requests, and only TLS needs them.
        is_secret = not url.startswith("http://")
        self._http = httpx.Client(base_url=url, headers=headers, transport=transport, verify=is_secret)
        #: The time of each stage of the last reply in the service, and `total`, in seconds.
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
        backoff_s: float | None = None,
        dead_letter_queue: str | None = None,
        expiry_s: float | None = None,
        lease_s: float | None = None,
    ) -> bool:
        """Create a queue, and return whether it is new. Any setting replaces all settings of an existing queue."""
        settings = {
            "attempts": attempts,
            "backoff": duration(backoff_s),
            "dead_letter_queue": dead_letter_queue,
            "expiry": duration(expiry_s),
            "lease": duration(lease_s),
        }
        given = {name: value for name, value in settings.items() if value is not None}
        reply = self._request("PUT", _queue(queue), document=given or None)
        return reply.status_code == httpx.codes.CREATED

    def queue(self, queue: str) -> dict[str, Any]:
        """Return the settings of a queue and its counts of visible and invisible messages."""
        described: dict[str, Any] = self._request("GET", _queue(queue)).json()
        return described

    def delete_queue(self, queue: str) -> None:
        """Delete a queue with its messages."""
        self._request("DELETE", _queue(queue))

    def has_queue(self, queue: str) -> bool:
        """Return whether the queue exists."""
        try:
            self._request("GET", _queue(queue))
        except ProblemError as error:
            if error.type != "unknown-queue":
                raise
            return False
        return True

    def queues(self) -> list[str]:
        """Return the names of all queues."""
        return self._names("/v1/queues")

    def waiting_queues(self, receiver: str) -> list[str]:
        """Return the queues that have messages addressed to this receiver."""
        return self._names(f"/v1/receivers/{_quoted(receiver)}/queues")

    def _names(self, path: str) -> list[str]:
        """Return the names on all pages of a list."""
        names: list[str] = []
        page = self._request("GET", path).json()
        names += page["queues"]
        while after := page.get("next"):
            page = self._request("GET", f"{path}?after={_quoted(after)}").json()
            names += page["queues"]
        return names

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
        """Send a message to one receiver or to anyone, and return its id. The message is then committed.

        With an idempotency key, the service stores the message once, so that a send in doubt is retried.
        """
        parameters = {"to": receiver, "delay": duration(delay_s), "expiry": duration(expiry_s)}
        path = f"{_queue(queue)}/messages"
        reply = self._request("POST", path, parameters, content=_bytes(body), key=key)
        return int(reply.json()["id"])

    def send_batch(
        self, queue: str, messages: Iterable[Outgoing | bytes | str], *, key: str | None = None
    ) -> list[int]:
        """Send several messages, all or none, and return their ids in the same order. The key is as in `send`."""
        outgoing = (message if isinstance(message, Outgoing) else Outgoing(message) for message in messages)
        document = {"messages": [message.document() for message in outgoing]}
        reply = self._request("POST", f"{_queue(queue)}/messages:batch", document=document, key=key)
        ids: list[int] = reply.json()["ids"]
        return ids

    def peek(
        self, queue: str | None = None, *, receiver: str | None = None, sender: str | None = None
    ) -> Message | None:
        """Peek at the oldest message. Without a queue, at the oldest of a sender over all queues."""
        return _one(self._request("GET", f"{_scope(queue)}messages/head", {"for": receiver, "from": sender}))

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
        return _several(self._request("GET", f"{_scope(queue)}messages/head", parameters))

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
        """Receive the oldest message. If it is not acknowledged within `lease_s`, it is redelivered."""
        parameters = {"for": receiver, "from": sender, "lease": duration(lease_s)}
        return _one(self._poll(f"{_queue(queue)}/messages:receive", parameters, wait_s))

    def acknowledge(self, lease_token: str) -> None:
        """Delete a processed message. Raises `ProblemError` of type `lease-expired` if another client has the message.

        A repeated acknowledgement succeeds, so the request is retried even if its outcome is unknown.
        """
        self._request("POST", f"/v1/leases/{_quoted(lease_token)}/acknowledge")

    def acknowledge_batch(self, lease_tokens: Iterable[str]) -> list[str]:
        """Acknowledge several messages, and return the tokens of leases that went to other clients."""
        document = {"lease_tokens": list(lease_tokens)}
        reply = self._request("POST", "/v1/leases:acknowledge", document=document)
        expired: list[str] = reply.json()["not_acknowledged"]
        return expired

    def extend(self, lease_token: str, lease_s: float | None = None) -> None:
        """Extend the visibility timeout to `lease_s` from now on."""
        self._request("POST", f"/v1/leases/{_quoted(lease_token)}/extend", {"lease": duration(lease_s)})

    def nack(self, lease_token: str, delay_s: float | None = None) -> None:
        """End the lease of a message that was not processed. It is redelivered, at once or after a delay."""
        self._request("POST", f"/v1/leases/{_quoted(lease_token)}/nack", {"delay": duration(delay_s)})

    def _poll(self, path: str, parameters: dict[str, str | None], wait_s: float) -> httpx.Response:
        """Fetch messages, and repeat the request until there is one or the wait is over.

        If the service refuses the wait as too long, the following requests have its longest wait.
        """
        deadline_s = time.monotonic() + wait_s
        while True:
            piece_s = min(max(deadline_s - time.monotonic(), 0.0), self._longest_wait_s)
            piece_ms = int(piece_s * 1000)
            asked = parameters | ({"wait": f"{piece_ms}ms"} if piece_ms else {})
            try:
                reply = self._request("POST", path, asked, wait_s=piece_s)
            except ProblemError as error:
                if error.longest_wait_s is None or error.longest_wait_s >= piece_s:
                    raise
                self._longest_wait_s = error.longest_wait_s
                continue
            is_empty = reply.status_code == httpx.codes.NO_CONTENT or (
                "max" in parameters and not reply.json()["messages"]
            )
            left_s = deadline_s - time.monotonic()
            if not is_empty or left_s <= 0.0:
                return reply
            # A service that permits no or very short waits must not be flooded.
            if self._longest_wait_s < _FIRST_PAUSE_S:
                time.sleep(min(_FIRST_PAUSE_S, left_s))

    def _request(
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
        """Send a request. Retry it while there is time, if it was not applied or can be applied twice."""
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
        # A repeated acknowledgement succeeds, and a send with a key is stored once.
        is_acknowledgement = path.startswith("/v1/leases") and path.endswith("acknowledge")
        is_repeatable = key is not None or is_acknowledgement
        deadline_s = time.monotonic() + self._retry_for_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return self._once(request)
            except (UnreachableError, InDoubtError) as error:
                if isinstance(error, InDoubtError) and not is_repeatable:
                    raise
                wanted_s = pause_s
                pause_s = min(2 * pause_s, 1.0)
                if time.monotonic() + wanted_s > deadline_s:
                    raise
            except ProblemError as error:
                # Clients that were refused together should not retry together.
                wanted_s = (error.retry_after_s or 0.0) * random.uniform(1.0, 1.2)
                if error.retry_after_s is None or time.monotonic() + wanted_s > deadline_s:
                    raise
            time.sleep(wanted_s)

    def _once(self, request: httpx.Request) -> httpx.Response:
        try:
            reply = self._http.send(request)
        except _NOT_REACHED as error:
            raise UnreachableError(f"{request.url}: unreachable: {error}") from error
        except httpx.TransportError as error:
            what = f"{request.method} {request.url}: no reply: {type(error).__name__} {error}"
            raise InDoubtError(f"{what}; the request may or may not have been applied") from error
        self.stage_times_s = stage_times_s(reply.headers.get("server-timing", ""))
        if reply.is_success:
            return reply
        raise _problem(reply)


def _problem(reply: httpx.Response) -> MessagesError:
    """Make an exception from a reply that is not a success."""
    try:
        document: dict[str, Any] = reply.json()
        problem_type = str(document["type"]).removeprefix(_PROBLEM)
        title, detail = str(document["title"]), str(document["detail"])
        longest_ms = document.get("longest_wait_ms")
        longest_wait_s = None if longest_ms is None else float(longest_ms) / 1000
    except (ValueError, KeyError, TypeError):
        longest_wait_s = None
        problem_type, title, detail = "", reply.reason_phrase, f"{reply.url}: {reply.text[:200]}"
    if problem_type == "in-doubt":
        return InDoubtError(f"{reply.request.method} {reply.url}: {detail}")
    try:
        retry_after_s = float(reply.headers["retry-after"])
    except (KeyError, ValueError):
        retry_after_s = None
    # Only the service can guarantee that a request was not applied; a proxy before it cannot.
    return ProblemError(
        problem_type,
        reply.status_code,
        title,
        detail,
        retry_after_s if problem_type else None,
        longest_wait_s,
    )


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
