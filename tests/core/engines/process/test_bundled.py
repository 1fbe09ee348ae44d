"""The bundled responders, run unchanged against local servers."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.bundled.ExtractIndicators.extract_indicators import indicators
from core.engines.base import Job, Report
from core.engines.process.engine import ProcessEngine
from tests.core.engines.process.conftest import MakeEngine, ProgressLog, job_for

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(talk: Talk) -> AsyncIterator[int]:
    """Run a server on the loopback interface; yields its port."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer)
        await writer.drain()
        writer.close()

    running = await asyncio.start_server(once, "127.0.0.1", 0)
    async with running:
        yield running.sockets[0].getsockname()[1]


class HttpServer:
    """Gives each request the same answer, and records the requests."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.head = ""
        self.body: Any = None

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(line for line in self.head.lower().splitlines() if line.startswith("content-length:"))
        self.body = json.loads(await reader.readexactly(int(length.split(":")[1])))
        writer.write(self.answer.encode())


class MailServer:
    """A minimal mail server that refuses recipients at `refused.example`."""

    def __init__(self) -> None:
        self.mail = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := (await reader.readline()).decode().strip():
            word = line.upper().split(":")[0].split(" ")[0]
            if word == "DATA":
                writer.write(b"354 go on\r\n")
                self.mail = (await reader.readuntil(b"\r\n.\r\n")).decode()
            if "refused.example" in line:
                writer.write(b"550 no such user\r\n")
            else:
                writer.write(b"221 bye\r\n" if word == "QUIT" else b"250 ok\r\n")
            if word == "QUIT":
                return


async def run(engine: ProcessEngine, name: str, change: Callable[[Job], Job] = lambda job: job) -> Report:
    return await engine.run(change(await job_for(engine, name, user="ann@example.org")), ProgressLog())


def with_data(data: dict[str, Any], data_type: str = "thehive:alert") -> Callable[[Job], Job]:
    return lambda job: replace(job, data=data, data_type=data_type)


async def test_unconfigured_bundled_responders_name_what_is_missing(make_engine: MakeEngine) -> None:
    found = await make_engine(folders=()).catalogue()
    assert [item.name for item in found.responders] == [
        "ResponderBot_CloseAsFalsePositive_1_0",
        "ResponderBot_ExtractIndicators_1_0",
    ]
    assert [(item.name, item.reason.partition("value: ")[2].partition(". ")[0]) for item in found.skipped] == [
        ("ResponderBot_Mail_1_0", "smtp_host, from, to"),
        ("ResponderBot_Webhook_1_0", "url"),
    ]


async def test_close_as_false_positive_tags_and_closes(make_engine: MakeEngine) -> None:
    engine = make_engine(folders=())
    name = "ResponderBot_CloseAsFalsePositive_1_0"
    report = await engine.run(
        await job_for(engine, name, user="ann@example.org", reason="Known scanner."), ProgressLog()
    )
    assert report.message == "Closed as a false positive, tagged false-positive."
    assert report.operations == ({"type": "AddTagToAlert", "tag": "false-positive"}, {"type": "MarkAlertAsRead"})


async def test_the_webhook_sends_the_object_with_its_token(make_engine: MakeEngine) -> None:
    web = HttpServer("HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok")
    async with server(web) as port:
        config = {"url": f"http://127.0.0.1:{port}/hook", "token": "open sesame"}
        engine = make_engine(folders=(), config={"ResponderBot_Webhook_1_0": config})
        report = await run(engine, "ResponderBot_Webhook_1_0")
    assert report.message == "Sent to 127.0.0.1, which answered 202."
    assert report.full == {"message": report.message, "status": 202, "answer": "ok"}
    assert web.head.startswith("POST /hook HTTP/1.1\r\n")
    assert "Authorization: Bearer open sesame\r\n" in web.head
    assert web.body["data"]["title"] == "Beacon to 198.51.100.7"
    assert list(web.body) == ["data", "dataType", "tlp", "pap", "message", "parameters"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\ndown", "127.0.0.1 answered 500 Oops. down"),
        ("HTTP/1.1 302 Found\r\nLocation: http://example.org/\r\n\r\n", "127.0.0.1 answered 302 Found."),
        ("", "127.0.0.1 broke off the connection: RemoteDisconnected("),
    ],
)
async def test_the_webhook_reports_what_went_wrong(make_engine: MakeEngine, answer: str, message: str) -> None:
    async with server(HttpServer(answer)) as port:
        config = {"url": f"http://127.0.0.1:{port}/"}
        report = await run(
            make_engine(folders=(), config={"ResponderBot_Webhook_1_0": config}), "ResponderBot_Webhook_1_0"
        )
    assert report.success is False
    assert report.message.startswith(message)


@pytest.mark.parametrize("scheme", ["http", "ftp"])
async def test_the_webhook_sends_the_login_of_its_url_and_does_not_show_it(
    make_engine: MakeEngine, scheme: str
) -> None:
    web = HttpServer("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\ntoken=k-77-88 is good")
    async with server(web) as port:
        config = {"url": f"{scheme}://ann:p%40ss%2Fword@127.0.0.1:{port}/hook?token=k-77-88"}
        engine = make_engine(folders=(), config={"ResponderBot_Webhook_1_0": config})
        report = await run(engine, "ResponderBot_Webhook_1_0")
    assert report.success is (scheme == "http")
    if report.success:
        assert web.head.startswith("POST /hook?token=k-77-88 HTTP/1.1\r\n")
        assert f"Authorization: Basic {base64.b64encode(b'ann:p@ss/word').decode()}\r\n" in web.head
    for word in ("p%40ss%2Fword", "p@ss/word", "k-77-88"):
        assert word not in json.dumps(report.__dict__)


async def test_a_mail_is_sent(make_engine: MakeEngine) -> None:
    post = MailServer()
    async with server(post) as port:
        config = {"smtp_host": "127.0.0.1", "smtp_port": port, "from": "soc@example.org", "to": ["a@example.org"]}
        engine = make_engine(folders=(), config={"ResponderBot_Mail_1_0": config})
        data = {
            "_id": "~12",
            "title": "Beacon\r\nBcc: everybody@example.org",
            "description": "Seen by the sensor.",
            "artifacts": [{"dataType": "ip", "data": "198.51.100.7"}],
        }
        report = await run(engine, "ResponderBot_Mail_1_0", with_data(data))
    assert report.message == ("Mail “[TLP:AMBER] Alert: Beacon Bcc: everybody@example.org” sent to a@example.org.")
    assert "\r\nBcc:" not in post.mail
    assert "Seen by the sensor." in post.mail
    assert "- ip: 198.51.100.7" in post.mail


async def test_a_mail_that_all_recipients_refuse_is_a_failure(make_engine: MakeEngine) -> None:
    async with server(MailServer()) as port:
        config = {"smtp_host": "127.0.0.1", "smtp_port": port, "from": "soc@example.org", "to": "a@refused.example"}
        report = await run(make_engine(folders=(), config={"ResponderBot_Mail_1_0": config}), "ResponderBot_Mail_1_0")
    assert report.message == ("The mail server 127.0.0.1 refused every receiver: a@refused.example: 550 no such user")


async def test_an_unreachable_mail_server_is_a_failure(make_engine: MakeEngine) -> None:
    async with server(MailServer()) as port:
        pass
    config = {"smtp_host": "127.0.0.1", "smtp_port": port, "from": "soc@example.org", "to": "a@example.org"}
    report = await run(make_engine(folders=(), config={"ResponderBot_Mail_1_0": config}), "ResponderBot_Mail_1_0")
    assert report.message == f"The mail server 127.0.0.1:{port} could not take the mail: Connection refused"


EXTRACT = "ResponderBot_ExtractIndicators_1_0"
TEXT = (
    "Beacon to hxxps://evil[.]example/a.php?x=1, and 198.51.100.7 (c2.evil.example), dropped invoice.exe "
    "d41d8cd98f00b204e9800998ecf8427e; seen 127.0.0.1 and version 1.2.3"
)


async def test_indicators_of_a_task_log_become_a_defanged_task_log(make_engine: MakeEngine) -> None:
    log = with_data({"_id": "~3", "message": TEXT}, "thehive:case_task_log")
    report = await run(make_engine(folders=()), EXTRACT, log)
    assert report.message == "Found 1 address, 1 domain, 1 URL, 1 hash."
    assert report.full["indicators"] == {
        "ip": ["198.51.100.7"],
        "domain": ["c2.evil.example"],
        "url": ["https://evil.example/a.php?x=1"],
        "hash": ["d41d8cd98f00b204e9800998ecf8427e"],
    }
    *added, operation = report.operations
    assert operation["type"] == "AddLogToTask"
    assert "- `hxxps://evil[.]example/a[.]php?x=1`" in operation["content"]
    assert {item["type"] for item in added} == {"AddArtifactToCase"}
    assert [(item["dataType"], item["data"]) for item in added] == [
        (kind, value) for kind, values in report.full["indicators"].items() for value in values
    ]


@pytest.mark.parametrize(("kind", "target"), [("thehive:alert", "Alert"), ("thehive:case", "Case")])
async def test_indicators_of_an_alert_or_case_become_artifacts_and_tags(
    make_engine: MakeEngine, kind: str, target: str
) -> None:
    known = [{"dataType": "domain", "data": "C2.evil.example"}, {"dataType": "file", "attachment": {"id": "1"}}]
    data = with_data({"title": "Beacon", "description": TEXT, "artifacts": known}, kind)
    report = await run(make_engine(folders=()), EXTRACT, data)
    added = "Added by Extract Indicators"
    assert [tuple(operation.values()) for operation in report.operations] == [
        (f"AddArtifactTo{target}", added, "ip", "198.51.100.7"),
        (f"AddArtifactTo{target}", added, "url", "https://evil.example/a.php?x=1"),
        (f"AddArtifactTo{target}", added, "hash", "d41d8cd98f00b204e9800998ecf8427e"),
        *((f"AddTagTo{target}", f"has-{name}") for name in ("ip", "domain", "url", "hash")),
    ]


async def test_what_is_an_observable_already_is_not_added(make_engine: MakeEngine) -> None:
    known = [{"dataType": "ip", "data": "198.51.100.7"}]
    report = await run(make_engine(folders=()), EXTRACT, with_data({"title": "198.51.100.7", "artifacts": known}))
    assert report.message == "Found 1 address. All of them are observables already."
    assert report.operations == ({"type": "AddTagToAlert", "tag": "has-ip"},)


async def test_a_long_list_of_addresses_is_added_in_part(make_engine: MakeEngine) -> None:
    text = " ".join(f"203.0.113.{number} 198.51.100.{number}" for number in range(1, 101))
    report = await run(make_engine(folders=()), EXTRACT, with_data({"title": text}))
    assert report.message == "Found 200 addresses. Only the first 100 of 200 new ones are added as observables."
    assert len(report.full["indicators"]["ip"]) == 200
    assert len([item for item in report.operations if item["type"] == "AddArtifactToAlert"]) == 100


SAMPLES = sorted((Path(__file__).parent / "siem").glob("*.json"))


@pytest.mark.parametrize("sample", SAMPLES, ids=[path.stem for path in SAMPLES])
def test_exactly_the_indicators_of_what_a_siem_sends_are_found(sample: Path) -> None:
    case = json.loads(sample.read_text())
    found = indicators(f"Alert\n{case.get('text') or json.dumps(case['event'], indent=2)}")
    assert {kind: sorted(values) for kind, values in found.items()} == {
        kind: sorted(values) for kind, values in case["indicators"].items()
    }


@pytest.mark.parametrize(
    ("text", "domains"),
    [
        ("host.name, user.id and kibana.alert.rule.name; event.dataset, winlog.event_data.TargetUserName", []),
        ('{"azure.signinlogs.properties.app": "x", "vendor.custom.zone": 1} | **data.vendor.network** | 7 |', []),
        ("vendor.custom.name: x, vendor.custom.id=7, userDetails.id and initiatedBy.user.id", []),
        ("winword.exe wrote report.doc.zip, update.py, run.sh, clip.mov, README.md and libssl.so.3", []),
        ("main.py:42 failed in ASP.NET", []),
        (r"C:\Temp\run.sh /opt/tool/update.py lib/x.so C:\\Users\\ann\\evil.com", []),
        ("System.IO, Microsoft.Storage, com.vendor.app, java.net; ann.info@corp.example", []),
        ("GET /update.sh from transfer.sh:443, curl transfer.sh/x, query=beacon.zip, www.evil.mov, b[.]py", [
            "transfer.sh", "beacon.zip", "www.evil.mov", "b.py"
        ]),
        ("evil.com: 5 hits, EVIL.NET, shop.com.py; xn--e1afmkfd.xn--p1ai ends here.", [
            "evil.com", "evil.net", "shop.com.py", "xn--e1afmkfd.xn--p1ai"
        ]),
        ("${jndi:ldap://dir.evil.net:1389/a}, CN=ca.evil.org, files at \\\\fs.corp.local\\x", [
            "dir.evil.net", "ca.evil.org", "fs.corp.local"
        ]),
        ("host.evil.id and email.bank.co.id are domains of Indonesia", ["host.evil.id", "email.bank.co.id"]),
    ],
)  # fmt: skip
def test_names_of_fields_files_and_classes_are_no_domains(text: str, domains: list[str]) -> None:
    assert indicators(text)["domain"] == domains


def test_addresses_in_urls_count_and_versions_and_networks_do_not() -> None:
    text = (
        "http://ann:x@203.0.113.9:8080/a http://127.0.0.1?x http://203.0.113.10[ [2001:DB8::1]:443 fe80::1 "
        "12:34:56 std::dec outside/203.0.113.11(80) aa:bb:cc:dd:ee:ff "
        '"version": "1.2.3.4" Chrome/120.0.0.0 10.0.0.0-10.255.255.255'
    )
    assert indicators(text)["ip"] == ["203.0.113.11", "203.0.113.9", "2001:db8::1"]


@pytest.mark.parametrize("word", ["a.", "a-", "1.2.", "a:", "http://", "evil[.]com ", "h.name=", "C:\\\\", '"id": "'])
@pytest.mark.timeout(20)  # a search that looks back from each place would take minutes
def test_a_text_made_to_be_slow_is_read_at_once(word: str) -> None:
    indicators((word * 100_000)[:100_000])


async def test_a_text_without_indicators_changes_nothing(make_engine: MakeEngine) -> None:
    alert = with_data({"title": "Nothing", "description": None})
    report = await run(make_engine(folders=()), EXTRACT, alert)
    assert (report.success, report.operations) == (True, ())
