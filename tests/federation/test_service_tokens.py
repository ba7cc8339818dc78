"""Access tokens of legacy services: what stubs see instead of them, and where they may go."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.core.carrier import Convicted
from federation.core.interworking import Admission, Interworking
from federation.core.service_tokens import SERVICE, ServiceTokens, cleaned, origin_of, read_token
from protofly.codec import build, decode
from protofly.errors import Code, PeerError, SettingsError, StubFaultError
from protofly.legacy_range import parse_range
from protofly.limits import STUB_USER_TOKENS
from protofly.message import Message
from tests.federation.test_interworking import BO, STUB, manifest
from tests.support.sides import Bus, MemoryCarrier, body_of

API = "https://api.legacy.example"
SECRET = "eyJhbGciOiJFUzI1NiJ9.e30.c2ln"


def invitation(token: object = SECRET, **more: object) -> Message:
    identity = {"userProfile": {"userURL": "user://a.example/ana"}, "accessToken": token, **more}
    return build(id=7, type="create", from_="hyperty://a.example/ana", to=BO, body={"value": 1, "identity": identity})


def identity_of(message: Message) -> dict[str, object]:
    identity = body_of(message)["identity"]
    assert isinstance(identity, dict)
    return identity


# Where they may go.


@pytest.mark.parametrize(
    "url", [API, f"{API}/v1?x=1", "https://api.legacy.example:443/who", "https://API.legacy.example"]
)
def test_token_goes_to_the_origin_that_the_operator_named(url: str) -> None:
    ServiceTokens([API], has_service_token=True).check(SERVICE, url)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example",
        "https://api.legacy.example.evil",
        "https://x.api.legacy.example",
        "https://api.legacy.example:8443",
        "https://api.legacy.example@evil.example",
        "https://user:pass@api.legacy.example",
        "https://user@api.legacy.example",
        "https://:pass@api.legacy.example",
        "https://@api.legacy.example",
        "https:///api.legacy.example",
        "http://api.legacy.example",
        "wss://api.legacy.example",
        "https://",
        "https://[",
    ],
)
def test_token_goes_nowhere_else(url: str) -> None:
    for origins in ([API], []):
        with pytest.raises(
            StubFaultError, check=lambda fault: (fault.code, fault.fault) == (Code.STUB_DENIED, "token")
        ):
            ServiceTokens(origins, has_service_token=True).check(SERVICE, url)


def test_name_that_was_given_to_nobody_is_denied() -> None:
    for tokens, name in ((ServiceTokens([API]), SERVICE), (ServiceTokens([API], has_service_token=True), "others")):
        with pytest.raises(StubFaultError):
            tokens.check(name, API)


@pytest.mark.parametrize("text", [SECRET, f"{SECRET}\n", f"{SECRET}\r\n", "a", "ab=="])
def test_token_is_read_from_its_file(text: str) -> None:
    assert read_token(text) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "\n", "a b", "a\nb", "a\r\nX-Evil: 1", "a\n\n", "ä", "a\0", "Bearer a", "x" * 8193]
)
def test_what_could_break_out_of_a_header_is_no_token(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_token(text)
    assert caught.value.detail == "not an access token: one line of letters, digits and -._~+/="


@given(text=st.text(max_size=40))
def test_every_token_is_safe_in_a_header(text: str) -> None:
    try:
        token = read_token(text)
    except SettingsError:
        return
    assert token.isascii()
    assert token.isprintable()
    assert not set(token) & set(' \r\n\t",;:')


@given(url=st.text(max_size=60) | st.builds("https://{}".format, st.text(max_size=30)))
def test_origin_is_https_or_nothing_and_stays_itself(url: str) -> None:
    origin = origin_of(url)
    assert not origin or (origin.startswith("https://") and origin_of(origin) == origin)


def test_what_a_service_says_back_is_cleaned() -> None:
    assert cleaned(f"you are {SECRET}, {SECRET}".encode(), SECRET) == b"you are [token], [token]"


# Tokens of users.


def test_token_of_a_user_is_a_handle_to_the_stub_and_the_same_one_again() -> None:
    tokens = ServiceTokens([API])
    first, second = tokens.veiled(invitation(), "h1"), tokens.veiled(invitation(access_token="other-1"), "h2")
    assert identity_of(first) == {"userProfile": {"userURL": "user://a.example/ana"}, "accessToken": "h1"}
    assert (identity_of(second)["accessToken"], identity_of(second)["access_token"]) == ("h1", "h2")
    assert SECRET.encode() not in first.raw + second.raw
    assert (tokens.of_user("h1"), tokens.of_user("h2"), tokens.of_user("h3")) == (SECRET, "other-1", "")
    tokens.check("h1", API)


def test_tokens_in_every_spelling_at_once_are_veiled() -> None:
    both = invitation(access_token="other").raw.replace(b'"value"', b'"v\\u0061lue"')
    [message] = decode(both)
    veiled = ServiceTokens([API]).veiled(message, "h").raw
    assert b"\\u" in message.body
    assert SECRET.encode() not in veiled
    assert b"other" not in veiled


def test_message_without_tokens_stays_as_it_is() -> None:
    message = build(id=7, type="create", from_="hyperty://a.example/ana", to=BO, body={"value": 1, "identity": {}})
    assert ServiceTokens([API]).veiled(message, "h") is message


def test_tokens_deep_inside_and_several_of_them_are_veiled() -> None:
    tokens = ServiceTokens([API])
    deep: object = {"accessToken": "deepest"}
    for _ in range(20):
        deep = [{"inner": deep}]
    veiled = tokens.veiled(invitation(more=deep, access_token="second"), "h")
    assert b"deepest" not in veiled.raw
    assert {tokens.of_user(name) for name in ("h", "h-2", "h-3")} == {SECRET, "second", "deepest"}


@pytest.mark.parametrize("token", [1, None, {"a": 1}, ["x"], "a b", "a\r\nX: 1", ""])
def test_what_is_no_token_is_refused_and_not_passed_on(token: object) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        ServiceTokens([API]).veiled(invitation(token), "h")


def test_too_many_tokens_in_one_message_are_refused() -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        ServiceTokens([API]).veiled(invitation(more=[{"accessToken": f"t{number}"} for number in range(9)]), "h")


def test_as_many_tokens_as_are_allowed_have_handles_that_are_numbered() -> None:
    tokens = ServiceTokens([API])
    tokens.veiled(invitation("t1", more=[{"accessToken": f"t{number}"} for number in range(2, 9)]), "h")
    assert [tokens.of_user(name) for name in ("h", *(f"h-{number}" for number in range(2, 10)))] == [
        *(f"t{number}" for number in range(1, 9)),
        "",
    ]
    with pytest.raises(PeerError, match="more than 8 access tokens"):
        tokens.veiled(invitation("t9"), "h")


def test_tokens_of_identities_elsewhere_in_a_message_are_veiled() -> None:
    inner = {"type": "create", "body": {"identity": {"accessToken": SECRET}}}
    for body in ({"value": {"identity": {"access_token": SECRET}}}, {"message": inner}):
        message = build(id=7, type="forward", from_="hyperty://a.example/ana", to=BO, body=body)
        assert SECRET.encode() not in ServiceTokens([API]).veiled(message, "h").raw


@pytest.mark.parametrize(
    "identity",
    [
        '{"acces\\u0073Token":"SECRET"}',
        '{"accessToken" : "SECRET"}',
        '{"accessToken":"SECRET","accessToken":"x"}',
        '{"accessToken":"SECRET"},"identity":{"x":1}',
        '{"accessToken":"SECRE\\u0054"}',
    ],
)
def test_token_is_veiled_however_it_is_spelled(identity: str) -> None:
    header = f'"id":7,"type":"create","from":"hyperty://a.example/ana","to":"{BO}"'
    [message] = decode(f'{{{header},"body":{{"identity":{identity}}}}}'.encode())
    veiled = ServiceTokens([API]).veiled(message, "h")
    assert b"SECRE" not in veiled.raw
    assert not {"SECRET"} & set(identity_of(veiled).values())


def test_message_without_a_token_keeps_its_content_and_its_bytes() -> None:
    def message(**body: object) -> Message:
        return build(id=7, type="create", from_="hyperty://a.example/ana", to=BO, body=body)

    plain, data = message(value={"x": [1, 2.5, None]}), message(value={"accessToken": "data"})
    assert ServiceTokens([API]).veiled(plain, "h").raw == plain.raw
    assert body_of(ServiceTokens([API]).veiled(data, "h")) == body_of(data)


def test_flood_of_tokens_is_bounded_and_the_oldest_is_forgotten() -> None:
    tokens = ServiceTokens([API])
    for number in range(STUB_USER_TOKENS + 10):
        tokens.veiled(invitation(f"t{number}"), f"h{number}")
        tokens.veiled(invitation("kept"), f"kept{number}")
    assert (tokens.of_user("h0"), tokens.of_user("kept0")) == ("", "kept")
    assert len(tokens._users) == len(tokens._handles) == STUB_USER_TOKENS


def test_stub_records_and_quarantine_see_the_handle_only() -> None:
    admission = Admission(domain=STUB, ranges=(parse_range("sip://legacy.example"),), token_origins=frozenset({API}))
    made = Interworking([admission], own_domains={"a.example"})
    made.verified(manifest("sip://legacy.example"))
    bus = Bus("a.example", interworking=made)
    carrier = MemoryCarrier(bus.link_to(STUB))
    carrier.open()
    assert carrier.near.send(invitation()) is None
    carrier.near.flush()
    [pending] = carrier.on_the_way
    carrier.near.handle(Convicted(pending))
    seen = (pending.wire, pending.message.raw, *(one.message.raw for one in bus.quarantined))
    assert not any(SECRET.encode() in raw for raw in seen)
    assert not any(SECRET in repr(record) for record in bus.records)
    handle = identity_of(pending.message)["accessToken"]
    tokens = made.tokens(STUB)
    assert tokens is not None
    assert tokens.of_user(str(handle)) == SECRET


def test_tokens_for_other_domains_are_their_senders_matter() -> None:
    bus = Bus("a.example")
    carrier = MemoryCarrier(bus.link_to("b.example"))
    carrier.open()
    assert (
        carrier.near.send(
            build(
                id=1,
                type="create",
                from_="hyperty://a.example/ana",
                to="hyperty://b.example/bo",
                body={"identity": {"accessToken": SECRET}},
            )
        )
        is None
    )
    carrier.near.flush()
    assert json.loads(carrier.on_the_way[0].wire)["body"]["identity"] == {"accessToken": SECRET}
