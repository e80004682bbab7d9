"""What answers that refuse mean, and what there is to do: by the words of real brokers."""

from __future__ import annotations

import pytest

from rmqtool.replay.connection import NO_PERMISSION, Response, look_up_refusal, refusal

NO_PERMISSION_OF_5 = "User:a has no permission to access Topic:orders from 127.0.0.1, no matched policies."


@pytest.mark.parametrize(
    "remark",
    [
        "org.apache.rocketmq.acl.common.AclException: No acl config for a, org.apache...",  # 4.9.7
        "Check signature failed for accessKey=a",  # 5.1.4
        "username cannot be null.",  # from 5.3.3 on
        "User:a is not found.",
        "check signature failed.",
    ],
)
def test_an_access_key_that_is_not_accepted(remark: str) -> None:
    for error in (refusal(answer(remark), "broker-a"), look_up_refusal(answer(remark), "broker-a")):
        assert "the access key or its signature is not accepted (code 16" in str(error)
        assert "--acl-file" in str(error.hint)


def test_who_may_not_write() -> None:
    error = refusal(answer(NO_PERMISSION_OF_5), "broker-a")
    assert f"broker-a: it is not permitted (code 16: {NO_PERMISSION_OF_5})" in str(error)
    assert "mqadmin updateAcl" in str(error.hint)


def test_who_may_not_read() -> None:
    """To send without looking up takes less."""
    error = look_up_refusal(answer(NO_PERMISSION_OF_5), "broker-a")
    assert "--no-look-up" in str(error.hint)


def answer(remark: str) -> Response:
    return Response(1, NO_PERMISSION, remark)
