"""What can go wrong for a client of the message service, by what the caller may do next."""

from waylab.errors import LabError


class MessagesError(LabError):
    """Something could not be done, or nobody knows whether it was."""


class UnreachableError(MessagesError):
    """Nobody listens. Nothing was done."""


class ProblemError(MessagesError):
    """The service said why it did nothing.

    Attributes:
        type: last word of the problem's type, such as `unknown-queue`; empty if it was none of the service's problems.
        status: of HTTP.
        title: in a few words; may change.
        detail: in one sentence; may change.
        retry_after_s: seconds after which it may be worth trying again; None if it is not.

    """

    def __init__(
        self, type_: str, status: int, title: str, detail: str, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{title}: {detail} ({type_ or 'no problem of the service'}, {status})")
        self.type = type_
        self.status = status
        self.title = title
        self.detail = detail
        self.retry_after_s = retry_after_s


class InDoubtError(MessagesError):
    """The connection broke meanwhile: it may or may not have been done. Only a send with a key is repeated."""
