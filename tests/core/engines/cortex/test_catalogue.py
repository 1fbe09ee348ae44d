"""The catalogue of a remote engine."""

import asyncio
import gzip
from collections.abc import Callable

import pytest

from core.common.errors import ResponderBotError
from core.engines.base import Catalogue, Responder, Skipped
from core.engines.cortex import CortexEngine
from tests.fake_cortex import BLOCKER, CutConnection, DelayedAnswer, FakeCortex, Fault, Reply

OFFERED = Responder(
    "5b2a5b6e9c",
    "Blocker_1_0",
    "1.0",
    "Blocks an address",
    ("thehive:alert", "thehive:case_artifact"),
    definition="Blocker_1_0",
    title="Blocker",
)


async def test_the_catalogue_comes_by_search(cortex: FakeCortex, engine: CortexEngine) -> None:
    assert await engine.catalogue() == Catalogue((OFFERED,))
    assert (await cortex.until("search_responders")).body == {"query": {}, "range": "all"}


async def test_a_version_without_search_is_asked_kind_by_kind(cortex: FakeCortex, engine: CortexEngine) -> None:
    cortex.has_search = False
    assert await engine.catalogue() == Catalogue((OFFERED,))
    assert cortex.count("responders_of_kind") == 5


async def test_maxima_of_older_versions_count_and_unreadable_ones_hide_the_responder(
    cortex: FakeCortex, engine: CortexEngine
) -> None:
    cortex.responders = [
        {**BLOCKER, "name": "A", "maxTlp": 1, "maxPap": None},
        {**BLOCKER, "name": "B", "maxTlp": 9, "maxPap": 2},
        {**BLOCKER, "name": "C", "maxTlp": "2"},
        {**BLOCKER, "name": "D", "maxPap": -1},
    ]
    catalogue = await engine.catalogue()
    assert [(one.name, one.max_tlp, one.max_pap) for one in catalogue.responders] == [("A", 1, 3), ("B", 3, 2)]
    assert [one.name for one in catalogue.skipped] == ["C", "D"]


async def test_entries_that_cannot_be_read_are_skipped_with_a_reason(cortex: FakeCortex, engine: CortexEngine) -> None:
    cortex.always("search_responders", Reply(body=[
        3, {"name": "NoId", "dataTypeList": []}, {"id": "..", "name": "Dots", "dataTypeList": []},
        {"id": "x", "name": "NoKinds"}, dict(BLOCKER),
    ]))  # fmt: skip
    assert await engine.catalogue() == Catalogue(
        (OFFERED,),
        (
            Skipped("?", "The engine lists a responder without a name."),
            Skipped("NoId", "The engine lists NoId without an id."),
            Skipped("Dots", "The engine lists Dots without an id."),
            Skipped("NoKinds", "The engine lists NoKinds without a readable dataTypeList."),
        ),
    )


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Reply(401, {"type": "AuthenticationError"}), "api_key"),
        (Reply(403), "api_key"),
        (Reply(500, {"message": "ElasticSearch cluster is unreachable"}), "ElasticSearch cluster is unreachable"),
        (Reply(429), "429"),
        (Reply(body={"a": 1}), "no list of responders"),
        (Reply(raw=b'[{"id": NaN}]'), "not usable JSON"),
        (Reply(raw=b"[1e999]"), "not usable JSON"),
        (Reply(raw=b"[" * 5000), "not usable JSON"),
        (CutConnection(), "the connection broke"),
        (CutConnection(after_bytes=5), "the connection broke"),
        (DelayedAnswer(asyncio.Event()), "within 2 s"),
    ],
)
async def test_an_engine_without_a_usable_list_is_unavailable_with_the_reason(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], fault: Fault, words: str
) -> None:
    cortex.always("search_responders", fault)
    with pytest.raises(ResponderBotError) as caught:
        await make_engine(timeout_s=2).catalogue()
    assert caught.value.code == "unavailable"
    assert words in caught.value.message
    assert "soar" in caught.value.message


async def test_an_engine_that_is_down_is_unavailable_and_comes_back(cortex: FakeCortex, engine: CortexEngine) -> None:
    port = int(cortex.url.rsplit(":", 1)[1])
    await cortex.stop()
    with pytest.raises(ResponderBotError, match="accepts no connection"):
        await engine.catalogue()
    await cortex.start(port=port)
    assert await engine.catalogue() == Catalogue((OFFERED,))


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "deflate", "br", "x" * 8000])
async def test_an_encoded_answer_is_not_decoded(cortex: FakeCortex, engine: CortexEngine, encoding: str) -> None:
    cortex.always("search_responders", Reply(raw=gzip.compress(b"[]"), headers={"Content-Encoding": encoding}))
    with pytest.raises(ResponderBotError, match="returned no list of responders: it is encoded") as caught:
        await engine.catalogue()
    assert encoding[:40] in caught.value.message
    assert len(caught.value.message) < 300


async def test_identity_is_asked_for_and_no_cookie_is_sent_back(make_engine: Callable[..., CortexEngine]) -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(len(b'{"query": {}, "range": "all"}'))
            cookies = b"".join(b"Set-Cookie: c%d=%s; Path=/\r\n" % (number, b"x" * 3000) for number in range(50))
            writer.write(b"HTTP/1.1 200 OK\r\n" + cookies + b"Content-Length: 2\r\n\r\n[]")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        engine = make_engine(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for _ in range(2):
            assert await engine.catalogue() == Catalogue()
    assert len(heads) == 2
    for head in heads:
        assert b"Accept-Encoding: identity\r\n" in head
        assert b"cookie" not in head.lower()


@pytest.mark.parametrize(
    "name", ["Bl\u043ecker_1_0", "Blocker\u200b_1_0", "Block\u00e9r_1_0", "Bl\nocker", "x" * 201, " B"]
)
async def test_a_name_that_might_hide_something_is_skipped(cortex: FakeCortex, engine: CortexEngine, name: str) -> None:
    cortex.responders = [{**BLOCKER, "name": name}]
    catalogue = await engine.catalogue()
    assert catalogue.responders == ()
    (skipped,) = catalogue.skipped
    assert "give it another name there" in skipped.reason


async def test_of_very_many_responders_the_first_are_read(cortex: FakeCortex, engine: CortexEngine) -> None:
    cortex.responders = [{**BLOCKER, "id": f"r{number}", "name": f"R{number}_1_0"} for number in range(1002)]
    catalogue = await engine.catalogue()
    assert [responder.name for responder in catalogue.responders] == [f"R{number}_1_0" for number in range(1000)]
    assert catalogue.skipped == (Skipped("?", "The engine lists 1002 responders; only the first 1000 are read."),)


async def test_an_answer_without_end_is_cut_off(cortex: FakeCortex, engine: CortexEngine) -> None:
    cortex.always("search_responders", Reply(raw=b" " * (17 * 1024 * 1024)))
    with pytest.raises(ResponderBotError, match=r"longer than|more than an answer can need"):
        await engine.catalogue()


@pytest.mark.parametrize("path", ["", "/", "/api", "/api/"])
async def test_the_address_may_be_written_in_several_ways(
    cortex: FakeCortex, make_engine: Callable[..., CortexEngine], path: str
) -> None:
    assert await make_engine(url=cortex.url + path).catalogue() == Catalogue((OFFERED,))


@pytest.mark.parametrize("url", ["", "cortex:9001", "ftp://cortex", "http://", "http://me:pass@cortex", "x y"])
def test_an_address_that_cannot_work_is_refused_at_once(url: str) -> None:
    with pytest.raises(ResponderBotError, match="url must look like") as caught:
        CortexEngine("soar", url=url, api_key="k" * 10)
    assert "pass@" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "  ", "ключ-ключ", "two\nlines"])
def test_an_invalid_key_is_refused_at_once(key: str) -> None:
    with pytest.raises(ResponderBotError, match="api_key"):
        CortexEngine("soar", url="http://cortex:9001", api_key=key)


async def test_the_key_appears_in_no_error_or_log(cortex: FakeCortex, make_engine: Callable[..., CortexEngine]) -> None:
    engine = make_engine()
    echo = f"who is Bearer {cortex.api_key}?"
    cortex.always("search_responders", Reply(500, {"type": cortex.api_key, "message": echo}))
    with pytest.raises(ResponderBotError) as caught:
        await engine.catalogue()
    assert "Bearer REMOVED" in caught.value.message
    assert cortex.api_key not in repr(engine) + repr(vars(engine)) + repr(caught.value)
