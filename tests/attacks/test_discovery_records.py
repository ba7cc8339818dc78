"""Attack rows 8 and 9: records that go in circles, decline, point to forbidden ports, or try to weaken trust."""

import pytest

from federation.core.discovery_errors import DiscoveryError, DiscoveryStep
from federation.core.name_questions import AnswerStatus, Question, RecordKind
from federation.discovery.attempt_log import AttemptLog
from federation.discovery.dialler import Dialler
from federation.discovery.resolver import Resolver
from interop.name_server import Fault, Records
from protofly.errors import Code
from protofly.limits import DISCOVERY_MAX_SECONDS
from tests.support.names import name_service

ALIASES = "_rethink-mn.b.example"


async def refused(
    records: dict[str, Records], faults: dict[str, Fault] | None = None
) -> tuple[DiscoveryStep, Code, int]:
    """DiscoveryStep, code and number of queries of a resolution that fails, and fails again without a query."""
    async with name_service(records, faults=faults) as (server, client):
        resolver = Resolver(client, own_domains=["a.example"])
        with pytest.raises(DiscoveryError) as caught:
            await resolver.resolve("b.example")
        asked = len(server.queries)
        with pytest.raises(DiscoveryError):
            await resolver.resolve("b.example")
        assert len(server.queries) == asked
    return caught.value.failure.step, caught.value.code, asked


async def test_alias_in_a_circle_ends() -> None:
    step, code, asked = await refused({ALIASES: ["SVCB 0 x.b.example."], "x.b.example": [f"SVCB 0 {ALIASES}."]})
    assert (step, code) == (DiscoveryStep.SVCB, Code.NO_SUCH_DOMAIN)
    assert asked <= 5


async def test_alias_to_itself_ends() -> None:
    step, code, _ = await refused({ALIASES: [f"SVCB 0 {ALIASES}."]})
    assert (step, code) == (DiscoveryStep.SVCB, Code.NO_SUCH_DOMAIN)


async def test_chain_of_aliases_ends_after_four_steps() -> None:
    records: dict[str, Records] = {ALIASES: ["SVCB 0 s0.b.example."]}
    records |= {f"s{number}.b.example": [f"SVCB 0 s{number + 1}.b.example."] for number in range(20)}
    step, code, asked = await refused(records)
    assert (step, code) == (DiscoveryStep.SVCB, Code.NO_SUCH_DOMAIN)
    assert asked == 3 + 4


async def test_four_aliases_are_followed() -> None:
    records: dict[str, Records] = {
        ALIASES: ["SVCB 0 s0.b.example."],
        "s3.b.example": ["SVCB 1 mn.b.example. port=8443"],
    }
    records |= {f"s{number}.b.example": [f"SVCB 0 s{number + 1}.b.example."] for number in range(3)}
    async with name_service(records) as (_, client):
        location = await Resolver(client, own_domains=["a.example"]).resolve("b.example")
    assert location.connect_to == ("mn.b.example", 8443)


@pytest.mark.parametrize(
    ("name", "record", "step"),
    [
        (ALIASES, "SVCB 0 .", DiscoveryStep.SVCB),
        (ALIASES, "SVCB 1 . port=8443", DiscoveryStep.SVCB),
        ("_rethink-mn._tcp.b.example", "SRV 0 0 0 .", DiscoveryStep.SRV),
    ],
)
async def test_target_of_the_root_means_no_and_nothing_else_is_tried(
    name: str, record: str, step: DiscoveryStep
) -> None:
    assert (await refused({name: [record], "b.example": ["A 127.0.0.1"]}))[:2] == (step, Code.SERVICE_DECLINED)


@pytest.mark.parametrize("port", [25, 53, 80, 1023, 6379, 11_211])
async def test_forbidden_port_refuses_the_records(port: int) -> None:
    assert (await refused({ALIASES: [f"SVCB 1 mn.b.example. port={port}"]}))[:2] == (
        DiscoveryStep.SVCB,
        Code.PORT_REFUSED,
    )
    srv = {"_rethink-mn._tcp.b.example": [f"SRV 0 0 {port} mn.b.example."]}
    assert (await refused({**srv}))[:2] == (DiscoveryStep.SRV, Code.PORT_REFUSED)


async def test_private_address_hints_are_not_even_read() -> None:
    records = {ALIASES: ["SVCB 1 mn.b.example. port=8443 ipv4hint=127.0.0.1 ipv6hint=::1"]}
    async with name_service(records) as (_, client):
        location = await Resolver(client, own_domains=["a.example"]).resolve("b.example")
        with pytest.raises(DiscoveryError, check=lambda error: error.code is Code.NO_SUCH_DOMAIN):
            await Dialler(client).connect(location.connect_host, location.connect_port, domain="b.example")


async def test_chain_of_twenty_cnames_is_no_answer() -> None:
    records: dict[str, Records] = {f"c{number}.b.example": [f"CNAME c{number + 1}.b.example."] for number in range(20)}
    records["c20.b.example"] = ["A 8.8.8.8"]
    async with name_service(records) as (_, client):
        answer = await client.ask(Question("c0.b.example", RecordKind.A))
        assert answer.status is AnswerStatus.FAILED
        assert (await client.ask(Question("c15.b.example", RecordKind.A))).addresses == ("8.8.8.8",)


async def test_cname_to_a_private_address_is_judged_by_the_address() -> None:
    records = {"mn.b.example": ["CNAME intranet.c.example."], "intranet.c.example": ["A 10.0.0.1"]}
    async with name_service(records) as (_, client):
        with pytest.raises(DiscoveryError, check=lambda error: error.code is Code.ADDRESS_REFUSED):
            await Dialler(client).connect("mn.b.example", 443, domain="b.example")


@pytest.mark.parametrize("fault", [Fault.SERVFAIL, Fault.REFUSED])
async def test_name_server_in_trouble_for_one_kind_of_name_leaves_the_rest(fault: Fault) -> None:
    records = {"_rethink-mn._tcp.b.example": ["SRV 0 0 8443 mn.b.example."]}
    async with name_service(records, faults={ALIASES: fault}) as (_, client):
        location = await Resolver(client, own_domains=["a.example"]).resolve("b.example")
    assert location.connect_to == ("mn.b.example", 8443)


async def test_unvalidated_pin_and_mode_stay_hints_and_their_removal_removes_nothing_else() -> None:
    line = f'TXT "v=rmn1; id=1; k={"e" * 43}; mode=testing"'
    async with name_service({ALIASES: [line]}, is_validating=True) as (
        server,
        client,
    ):  # AD set, but nobody believes it
        times = [0.0]
        resolver = Resolver(client, own_domains=["a.example"], log=AttemptLog(lambda: times[-1]))
        location = await resolver.resolve("b.example")
        assert location.pin_hint == "e" * 43
        assert not location.pin_is_validated
        server.replace({"b.example": ["A 127.0.0.1"]})
        times.append(DISCOVERY_MAX_SECONDS)
        location = await resolver.resolve("b.example")
    assert (location.pin_hint, location.change_id, location.mode) == ("", "", "enforce")


@pytest.mark.parametrize(
    "text", ["v=rmn1; k=", 'v=rmn1; id="', "v=rmn1;" + "x" * 240, "\\000\\255", "v=rmn1; mode=none"]
)
async def test_broken_txt_records_cost_nothing_but_their_hints(text: str) -> None:
    quoted = text.replace('"', '\\"')
    async with name_service({ALIASES: [f'TXT "{quoted}"', "SVCB 1 mn.b.example."]}) as (_, client):
        location = await Resolver(client, own_domains=["a.example"]).resolve("b.example")
    assert (location.pin_hint, location.change_id, location.connect_host) == ("", "", "mn.b.example")
