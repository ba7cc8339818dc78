"""GUIDs and their signed records: the vector of the data formats, genuine published records, and what is refused."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given, settings
from hypothesis import strategies as st

from protofly.errors import Code, PeerError
from protofly.guid import (
    Encoding,
    bare_guid,
    derive_guid,
    guid_address,
    is_signed,
    load_private_key,
    load_public_key,
    private_key_pem,
    public_key_text,
    sign,
)
from protofly.guid_record import (
    Draft,
    Flaw,
    GuidRecord,
    Mark,
    RecordError,
    UserId,
    advance,
    check_usable,
    make_record,
    merged_user_ids,
    read_record,
    sign_dataset,
)
from protofly.limits import GUID_KEY_CHARS, GUID_RECORD_BYTES
from protofly.signatures import base64url

PUBLISHED = Path(__file__).parent / "guid_records"

# The vector: data formats, section 4.5.
KEY = ec.derive_private_key(int.from_bytes(hashlib.sha256(b"mn test vector 1, never use").digest()), ec.SECP256K1())
PUBLIC_KEY = (
    "-----BEGIN PUBLIC KEY-----MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAE/GX+PZACbaT1Rm42UdD9iHx8nlUhGtXjl0UEzwApvlYyBOm1"
    "1ZomtrPEpXkR3vR57IzQ4DFUgmJnZnYlxCpVBA==-----END PUBLIC KEY-----"
)
SALT = "q1w2e3r4t5y6u7i8"
GUID = "3mCDsu5R9o0HlNMBxdICiQS1vGRMUD39jkpl5u3iRdI"
DATASET: dict[str, Any] = {
    "schemaVersion": 2,
    "guid": GUID,
    "salt": SALT,
    "userIDs": [{"uid": "user://idp-a.example/carol", "domain": "svc-b.example"}],
    "legacyIDs": [{"type": "email", "category": "work", "description": "office", "id": "carol@work.example"}],
    "lastUpdate": "2026-03-01T09:00:00+00:00",
    "timeout": "2027-03-01T09:00:00+00:00",
    "publicKey": PUBLIC_KEY,
    "active": 1,
    "revoked": 0,
    "defaults": {"voice": "", "chat": "", "video": ""},
}
SIGNATURES: dict[Encoding, str] = {
    "raw": "KajKYBQYbJJh74uXPcH2eo7HikHAhxc_WNRJllTZRhux5AZuqni3kEU7TPHKVZueuGclM52iRpH4969tlcG6Gg",
    "der": "MEUCICmoymAUGGySYe-Llz3B9nqOx4pBwIcXP1jUSZZU2UYbAiEAseQGbqp4t5BFO0zxylWbnrhnJTOdokaR-PevbZXBuho",
}
UPDATED = 1_772_355_600.0  # of the vector: 2026-03-01T09:00:00Z
ENDS = 1_803_891_600.0
RAW, DER = (base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) for text in SIGNATURES.values())
NOW = UPDATED + 86_400


def text_of(dataset: dict[str, Any]) -> bytes:
    return json.dumps(dataset, separators=(",", ":")).encode()


def record_of(**changes: Any) -> str:
    """The vector's record with other members, signed by its key; a member of None is left out."""
    made = {name: value for name, value in {**DATASET, **changes}.items() if value is not None}
    return sign_dataset(text_of(made), KEY)


def flaw_of(jwt: str, *, guid: str = GUID) -> Flaw:
    with pytest.raises(RecordError) as caught:
        read_record(jwt, guid=guid)
    return caught.value.flaw


def jws(header: bytes, payload: bytes, key: ec.EllipticCurvePrivateKey = KEY) -> str:
    text = f"{base64url(header)}.{base64url(payload)}"
    return f"{text}.{base64url(sign(text.encode(), key))}"


GOOD = sign_dataset(text_of(DATASET), KEY)
PAYLOAD = json.dumps({"data": base64url(text_of(DATASET))}, separators=(",", ":")).encode()


# The vector and genuine records.


def test_guid_of_the_vector_follows_from_its_key_and_salt() -> None:
    assert public_key_text(KEY.public_key()) == PUBLIC_KEY
    assert derive_guid(PUBLIC_KEY, SALT) == GUID
    assert derive_guid(f"  {PUBLIC_KEY[:26]}\r\n{PUBLIC_KEY[26:]}\n", SALT) == GUID
    assert derive_guid(PUBLIC_KEY, SALT + " ") != GUID


@pytest.mark.parametrize("encoding", ["raw", "der"])
def test_vector_is_signed_to_the_byte_and_believed_in_both_encodings(encoding: Encoding) -> None:
    jwt = sign_dataset(text_of(DATASET), KEY, encoding=encoding)
    signed, _, signature = jwt.rpartition(".")
    digest = "e9b10d51534f84f248fad673a1953514d335bdbfdbb446f8c16eaf331d9730e7"
    assert hashlib.sha256(signed.encode()).hexdigest() == digest
    assert signature == SIGNATURES[encoding]
    record = read_record(jwt, guid=GUID)
    assert record.user_ids == (UserId("user://idp-a.example/carol", "svc-b.example"),)
    assert (record.last_update_us, record.timeout_us) == (UPDATED * 1e6, ENDS * 1e6)
    assert record.is_complete
    check_usable(record, now=NOW)


@pytest.mark.parametrize(
    ("name", "guid", "user_id"),
    [
        (
            "dataset-test-2017",  # v1 with `uID`, r‖s
            "b_3eJqg2-6Mu8bkLZH9XYGx-PIcG6Fk-4nO0_6kkhfI",
            UserId("user://alice", "google.com"),
        ),
        (
            "readme-2016",  # before versions: plain texts, DER
            "bXBhhJm-o40WBIcXQQECH0-_MqNux6p3ANxt7lFA-Mg",
            UserId("reTHINK://facebook.com/fluffy123"),
        ),
        (
            "connector-test",  # the key in base64url without padding, DER
            "puZE5qCSGqcjg5mViBM3CdQHKIcHpRoyF3OGLTaYzGs",
            UserId("reTHINK://facebook.com/fluffy123"),
        ),
    ],
)
def test_genuine_published_records_are_believed_and_expired(name: str, guid: str, user_id: UserId) -> None:
    jwt = (PUBLISHED / f"{name}.jwt").read_text(encoding="ascii")
    record = read_record(jwt, guid=guid)
    assert record.user_ids[-1] == user_id
    assert record.is_active
    assert not record.is_revoked
    check_usable(record, now=record.last_update_us / 1e6)
    with pytest.raises(RecordError) as caught:
        check_usable(record, now=ENDS)
    assert caught.value.flaw is Flaw.EXPIRED


def test_what_we_write_is_what_we_read() -> None:
    draft = Draft(
        salt="a salt",
        user_ids=(UserId("user://idp.example/ana", "a.example"), UserId("user://idp.example/ana-2")),
        last_update="2026-03-01T10:00:00+01:00",
        timeout="2026-05-30T09:00:00.250Z",
    )
    key = ec.generate_private_key(ec.SECP256K1())
    record = read_record(make_record(draft, key, encoding="der"))
    assert record.user_ids == draft.user_ids
    assert record.last_update_us == UPDATED * 1e6
    assert record.timeout_us % 1_000_000 == 250_000
    assert record.guid == derive_guid(public_key_text(key.public_key()), "a salt")
    assert (record.is_complete, record.schema_version) == (True, 2)


def test_private_key_survives_its_file_and_others_are_refused() -> None:
    assert load_private_key(private_key_pem(KEY)).private_numbers() == KEY.private_numbers()
    for wrong in (private_key_pem(ec.generate_private_key(ec.SECP256R1())), b"", b"-----BEGIN PRIVATE KEY-----"):
        with pytest.raises(ValueError):
            load_private_key(wrong)


# Hostile records. One for each check.


def test_members_that_registries_want_are_missed_but_old_records_are_believed() -> None:
    assert not read_record(record_of(schemaVersion=None), guid=GUID).is_complete
    assert not read_record(record_of(defaults=None), guid=GUID).is_complete
    assert read_record(record_of(active=None), guid=GUID).is_active


@pytest.mark.parametrize(
    ("jwt", "flaw"),
    [
        ("a" * (GUID_RECORD_BYTES + 1), Flaw.TOO_LARGE),
        ("e30." * 2_500_000 + "e30", Flaw.TOO_LARGE),  # 10 MiB
        (sign_dataset(b" " * (10 << 20), KEY), Flaw.TOO_LARGE),
        ("", Flaw.FORM),
        ("e30.e30", Flaw.FORM),
        (GOOD + ".e30", Flaw.FORM),
        (GOOD.replace(".", ".é", 1), Flaw.FORM),
        (GOOD.replace(".", ". ", 1), Flaw.FORM),
        ("A." + GOOD.partition(".")[2], Flaw.FORM),
        (GOOD + "!", Flaw.FORM),  # a decoder that skips what it does not know would read the same
        (GOOD.replace(".", ".!", 1), Flaw.FORM),
        ("!" + GOOD, Flaw.FORM),
        (GOOD + "===", Flaw.FORM),
        (jws(b"[]", PAYLOAD), Flaw.FORM),
        (jws(b'{"alg":"ES256"}', b"[" * 40_000), Flaw.FORM),
        (jws(b'{"alg":"ES256"}', b'{"data":5}'), Flaw.FORM),
        (jws(b'{"alg":"ES256"}', b'{"data":"?"}'), Flaw.FORM),
        (jws(b'{"alg":"ES256"}', PAYLOAD[:-1] + b',"exp":1}'), Flaw.FORM),
        (jws(b'{"alg":"ES256"}', PAYLOAD[:-1] + b',"data":"e30"}'), Flaw.FORM),
        (jws(b'{"alg":"ES256","alg":"none"}', PAYLOAD), Flaw.FORM),
        (jws(b'{"alg":"none"}', PAYLOAD), Flaw.HEADER),
        (jws(b'{"alg":"HS256"}', PAYLOAD), Flaw.HEADER),
        (jws(b'{"alg":"ES256K"}', PAYLOAD), Flaw.HEADER),
        (jws(b'{"alg":"es256"}', PAYLOAD), Flaw.HEADER),
        (jws(b'{"alg":"ES256","jwk":{}}', PAYLOAD), Flaw.HEADER),
        (jws(b'{"alg":"ES256","crit":["b64"],"b64":false}', PAYLOAD), Flaw.HEADER),
        (jws(b"{}", PAYLOAD), Flaw.HEADER),
        (sign_dataset(b"{}", KEY), Flaw.DATASET),
        (sign_dataset(b"no JSON", KEY), Flaw.DATASET),
        (sign_dataset(text_of(DATASET)[:-1] + b',"guid":"x"}', KEY), Flaw.DATASET),
        (record_of(userIDs=None), Flaw.DATASET),
        (record_of(userIDs=[5]), Flaw.DATASET),
        (record_of(userIDs=[{"uid": "user://a.example/x"}] * 257), Flaw.DATASET),
        (record_of(salt=5), Flaw.DATASET),
        (record_of(revoked=None), Flaw.DATASET),
        (record_of(revoked=2), Flaw.DATASET),
        (record_of(revoked=False), Flaw.DATASET),
        (record_of(active="1"), Flaw.DATASET),
        (record_of(schemaVersion=3), Flaw.DATASET),
        (record_of(lastUpdate="2026-03-01"), Flaw.DATASET),
        (record_of(lastUpdate="2026-03-01T09:00:00"), Flaw.DATASET),
        (record_of(lastUpdate="2026-02-31T09:00:00Z"), Flaw.DATASET),
        (record_of(timeout="9999-12-31T23:59:59-99:99"), Flaw.DATASET),
        (record_of(timeout=1_803_891_600), Flaw.DATASET),
        (record_of(defaults={"voice": 1}), Flaw.DATASET),
        (record_of(guid="b_3eJqg2-6Mu8bkLZH9XYGx-PIcG6Fk-4nO0_6kkhfI"), Flaw.GUID),
        (record_of(salt="another"), Flaw.GUID),
        (record_of(publicKey="none"), Flaw.KEY),
        (record_of(publicKey="-----BEGIN PUBLIC KEY----------END PUBLIC KEY-----"), Flaw.KEY),
        (record_of(publicKey=public_key_text(ec.generate_private_key(ec.SECP256R1()).public_key())), Flaw.KEY),
        (record_of(publicKey=PUBLIC_KEY.replace("AAoDQgAE", "AAoDQgAF")), Flaw.KEY),
    ],
)
def test_record_is_refused(jwt: str, flaw: Flaw) -> None:
    assert flaw_of(jwt) is flaw


def test_a_record_may_have_its_most_characters_and_no_more() -> None:
    assert read_record(GOOD.ljust(GUID_RECORD_BYTES)) == read_record(GOOD)
    assert flaw_of(GOOD.ljust(GUID_RECORD_BYTES + 1)) is Flaw.TOO_LARGE


def test_record_of_another_guid_is_refused_although_it_is_good() -> None:
    assert flaw_of(GOOD, guid="b_3eJqg2-6Mu8bkLZH9XYGx-PIcG6Fk-4nO0_6kkhfI") is Flaw.GUID


def test_record_of_2015_that_is_silent_about_it_is_active() -> None:
    old = {name: value for name, value in DATASET.items() if name not in ("active", "schemaVersion", "defaults")}
    record = read_record(sign_dataset(text_of(old), KEY))
    assert (record.is_active, record.is_revoked, record.schema_version, record.is_complete) == (True, False, 1, False)
    assert not read_record(record_of(active=0)).is_active


def test_guid_claimed_by_a_foreign_key_is_refused() -> None:
    thief = ec.generate_private_key(ec.SECP256K1())
    assert flaw_of(sign_dataset(text_of(DATASET), thief)) is Flaw.SIGNATURE
    claimed = {**DATASET, "publicKey": public_key_text(thief.public_key())}
    assert flaw_of(sign_dataset(text_of(claimed), thief)) is Flaw.GUID


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        bytes(64),
        b"\xff" * 64,
        RAW[:63],
        RAW + b"\0",
        DER + b"\0",
        b"0\x81\x45" + DER[2:],  # a longer length than DER allows
        b"0\x06\x02\x01\x00\x02\x01\x00",
    ],
)
def test_signature_in_neither_encoding_is_refused(signature: bytes) -> None:
    assert flaw_of(f"{GOOD.rpartition('.')[0]}.{base64url(signature) or 'AA'}") is Flaw.SIGNATURE


def test_padding_is_taken_and_the_longer_half_of_the_curve_too() -> None:
    read_record(GOOD + "==", guid=GUID)
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    signature = sign(b"data", KEY)
    other = signature[:32] + (order - int.from_bytes(signature[32:])).to_bytes(32)
    assert is_signed(b"data", other, KEY.public_key())


# Time.


def test_only_forward_in_time() -> None:
    older, same = read_record(record_of(lastUpdate="2026-02-01T09:00:00Z")), read_record(GOOD)
    mark = advance(same, advance(older, None, now=NOW), now=NOW)
    assert mark == Mark(int(UPDATED * 1e6), same.digest)
    assert advance(same, mark, now=NOW) == mark
    der = read_record(sign_dataset(text_of(DATASET), KEY, encoding="der"))
    assert advance(der, mark, now=NOW) == mark  # one dataset, two encodings
    with pytest.raises(RecordError) as caught:
        advance(older, mark, now=NOW)
    assert (caught.value.flaw, caught.value.code) == (Flaw.OUTDATED, Code.ROLLBACK)
    assert caught.value.of_writer().code is Code.RECORD_OUTDATED


def test_two_datasets_of_one_moment_are_refused() -> None:
    mark = advance(read_record(GOOD), None, now=NOW)
    twin = read_record(record_of(userIDs=[]))
    with pytest.raises(RecordError) as caught:
        advance(twin, mark, now=NOW)
    assert caught.value.flaw is Flaw.CONFLICT


def test_record_from_the_future_is_refused_beyond_five_minutes() -> None:
    record = read_record(GOOD)
    advance(record, None, now=UPDATED - 300)
    with pytest.raises(RecordError) as caught:
        advance(record, None, now=UPDATED - 301)
    assert caught.value.flaw is Flaw.FUTURE


@pytest.mark.parametrize("last_update", ["2026-02-01T09:00:00Z", "2026-03-01T09:00:00Z", "2036-03-01T09:00:00Z"])
def test_revocation_stays_whenever_it_was_said(last_update: str) -> None:
    mark = advance(read_record(GOOD), None, now=NOW)
    revoked = read_record(record_of(revoked=1, lastUpdate=last_update))
    ended = advance(revoked, mark, now=NOW)
    assert ended.is_revoked
    assert advance(revoked, ended, now=NOW) == ended  # said again
    newer = read_record(record_of(lastUpdate="2026-03-02T09:00:00Z"))
    with pytest.raises(RecordError) as caught:
        advance(newer, ended, now=NOW + 86_400)
    assert (caught.value.flaw, caught.value.of_writer().code) == (Flaw.REVOKED, Code.RECORD_REVOKED)


@pytest.mark.parametrize(
    ("changes", "now", "flaw", "code"),
    [
        ({"revoked": 1}, NOW, Flaw.REVOKED, Code.RECORD_REVOKED),
        ({"active": 0}, NOW, Flaw.INACTIVE, Code.RECORD_INACTIVE),
        ({}, ENDS, Flaw.EXPIRED, Code.EXPIRED),
    ],
)
def test_record_that_is_of_no_use_says_why(changes: dict[str, Any], now: float, flaw: Flaw, code: Code) -> None:
    record = read_record(record_of(**changes), guid=GUID)
    with pytest.raises(RecordError) as caught:
        check_usable(record, now=now)
    assert (caught.value.flaw, caught.value.code) == (flaw, code)
    check_usable(read_record(GOOD), now=ENDS - 0.001)


@pytest.mark.parametrize(
    ("flaw", "reader", "writer"),
    [
        (Flaw.SIGNATURE, Code.BAD_REPLY, Code.BAD_BODY),
        (Flaw.TOO_LARGE, Code.BAD_REPLY, Code.TOO_LARGE),
        (Flaw.CONFLICT, Code.BAD_REPLY, Code.RECORD_OUTDATED),
        (Flaw.FUTURE, Code.BAD_REPLY, Code.BAD_BODY),
    ],
)
def test_reader_blames_the_registry_and_writer_itself(flaw: Flaw, reader: Code, writer: Code) -> None:
    error = RecordError(flaw, "x")
    assert (error.code, error.of_writer().code) == (reader, writer)


# Names.


def test_guid_is_read_with_and_without_its_scheme() -> None:
    assert bare_guid(GUID) == bare_guid(guid_address(GUID)) == bare_guid("User-GUID://" + GUID) == GUID
    for wrong in ("", GUID[:-1], GUID + "A", "user://" + GUID, GUID[:-1] + "=", "../" + GUID[3:]):
        with pytest.raises(PeerError) as caught:
            bare_guid(wrong)
        assert caught.value.code is Code.BAD_BODY


def test_later_identifier_replaces_the_earlier_one() -> None:
    old, new = UserId("user://a.example/x", "a.example"), UserId("user://a.example/x", "b.example")
    other = UserId("user://a.example/y")
    assert merged_user_ids((old, other), (new,)) == (new, other)


# Promises.


@given(text=st.text(max_size=300) | st.from_regex(r"[A-Za-z0-9_-]{0,90}(\.[A-Za-z0-9_=-]{0,90}){1,3}", fullmatch=True))
def test_any_text_gives_a_record_or_an_error_of_ours(text: str) -> None:
    with contextlib.suppress(RecordError):
        assert isinstance(read_record(text), GuidRecord)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(sorted(DATASET)), JSON, min_size=1, max_size=3))
def test_any_members_signed_by_the_key_give_a_record_or_an_error_of_ours(changes: dict[str, Any]) -> None:
    with contextlib.suppress(RecordError):
        record = read_record(sign_dataset(json.dumps({**DATASET, **changes}).encode(), KEY), guid=GUID)
        assert record.guid == GUID


@given(position=st.integers(0, len(GOOD) - 1), character=st.characters(codec="ascii"))
@settings(deadline=None)
def test_record_with_one_other_character_is_the_same_record_or_refused(position: int, character: str) -> None:
    changed = GOOD[:position] + character + GOOD[position + 1 :]
    with contextlib.suppress(RecordError):
        assert read_record(changed, guid=GUID).digest == read_record(GOOD).digest


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_a_public_key_or_a_value_error(raw: bytes) -> None:
    text = f"-----BEGIN PUBLIC KEY-----{base64.b64encode(raw).decode()}-----END PUBLIC KEY-----"
    with contextlib.suppress(ValueError):
        assert isinstance(load_public_key(text), ec.EllipticCurvePublicKey)


def test_a_public_key_may_have_its_most_characters_and_no_more() -> None:
    begin, end = PUBLIC_KEY[:26], PUBLIC_KEY[26:]
    padded = begin + " " * (GUID_KEY_CHARS - len(PUBLIC_KEY)) + end
    assert public_key_text(load_public_key(padded)) == PUBLIC_KEY
    with pytest.raises(ValueError, match="not a public key in PEM"):
        load_public_key(begin + " " + padded[26:])


def test_a_public_key_is_read_with_a_short_point_and_without_padding_but_with_no_other_character() -> None:
    key = load_public_key(PUBLIC_KEY)
    point = key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
    algorithm = bytes.fromhex("301006072a8648ce3d020106052b8104000a")
    der = b"\x30" + bytes([len(algorithm) + 3 + len(point)]) + algorithm + b"\x03\x22\x00" + point
    short = base64.b64encode(der).decode().rstrip("=")
    assert len(short) % 4 == 3
    assert load_public_key(PUBLIC_KEY[:26] + short + PUBLIC_KEY[-24:]) == key
    with pytest.raises(ValueError, match=r"(?i)base64"):
        load_public_key(PUBLIC_KEY[:40] + "!" + PUBLIC_KEY[40:])


def test_keys_of_no_curve_are_refused() -> None:
    other = ed25519.Ed25519PrivateKey.generate()
    der = other.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(ValueError, match="not a key of the curve secp256k1"):
        load_public_key(PUBLIC_KEY[:26] + base64.b64encode(der).decode() + PUBLIC_KEY[-24:])
    pem = other.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ValueError, match="not a key of the curve secp256k1"):
        load_private_key(pem)


def test_signature_of_another_hash_does_not_count() -> None:
    assert not is_signed(b"data", KEY.sign(b"data", ec.ECDSA(hashes.SHA512())), KEY.public_key())


@pytest.mark.parametrize("change", [("BEGIN", "BEGUN"), ("END", "AND"), ("KEY-----", "KEY-----" + " " * 10_000)])
def test_a_public_key_in_another_frame_or_too_long_is_none(change: tuple[str, str]) -> None:
    good = public_key_text(KEY.public_key())
    assert load_public_key(good).public_numbers() == KEY.public_key().public_numbers()
    with pytest.raises(ValueError, match="not a public key in PEM"):
        load_public_key(good.replace(*change, 1))


def test_defaults_of_a_record_are_read_or_none() -> None:
    chosen = {"voice": "tel:+4930", "chat": "", "video": "x"}
    assert read_record(record_of(defaults=chosen), guid=GUID).defaults == chosen
    assert read_record(record_of(defaults=None), guid=GUID).defaults == {}
