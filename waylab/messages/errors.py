"""Exceptions of the client of the message service, by what the caller can do next."""

from waylab.errors import LabError


class MessagesError(LabError):
    """A request failed, or its outcome is unknown."""


class UnreachableError(MessagesError):
    """The service cannot be reached. The request was not applied."""


class ProblemError(MessagesError):
    """The service returned a problem. The request was not applied.

    Attributes:
        type: the last part of the problem type, such as `unknown-queue`; empty if the reply is not from the service.
        status: the HTTP status.
        title: a short description, which can change.
        detail: one sentence, which can change.
        retry_after_s: seconds after which to retry; None if a retry is useless.
        longest_wait_s: the service's limit, if the wait of the request was longer; otherwise None.

    """

    def __init__(
        self,
        type_: str,
        status: int,
        title: str,
        detail: str,
        retry_after_s: float | None = None,
        longest_wait_s: float | None = None,
    ) -> None:
        super().__init__(f"{title}: {detail} ({type_ or 'no problem document'}, {status})")
        self.type = type_
        self.status = status
        self.title = title
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.longest_wait_s = longest_wait_s


class InDoubtError(MessagesError):
    """The outcome of a request is unknown. The client retries only a send with an idempotency key."""
