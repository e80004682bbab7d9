"""What may go wrong with a name server or a broker."""

from __future__ import annotations

from rmqtool.base.errors import RmqtoolError


class PeerError(RmqtoolError):
    """A name server or a broker that cannot be reached, does not answer in time, or answers what is no answer.

    Whether it has done what it was asked for is not known then.
    """

    kind = "peer"


class RefusedError(PeerError):
    """A request that a name server or a broker refuses; `code` and `remark` are those of its answer."""

    kind = "refused"

    def __init__(self, message: str, code: int, remark: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.remark = remark
