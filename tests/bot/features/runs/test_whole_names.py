"""Where somebody decides, a target is never cut, and what the alert says of it is beside it, also in a case."""

import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.block_kit import ids
from bot.block_kit.text import clip_apart
from core.client import CoreClient
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.people import card_of, filled_in, message_in, modal, options_of, reply_to, text_of
from tests.bot.running import SOC

START, END = "srv-files-of-the-finance-department-emea-headquarters", "building-7-floor-3-of-the-tower.corp"
ENCRYPTING, BACKUP = (f"{START}-{what}-{END}" for what in ("encrypting-node", "healthy0-backup"))
HOSTS = [
    {"dataType": "hostname", "data": ENCRYPTING, "message": "encrypts its shares"},
    {"dataType": "hostname", "data": BACKUP, "message": "its backup, healthy"},
]


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[FeatureEnvironment]:
    async with feature_environment(
        tmp_path, {name: {"target": "hostname"} for name in ("Isolate", "Contain")}
    ) as environment:
        yield environment


def plain(name: str) -> str:
    """As it is shown."""
    return name.replace(".", "[.]")


def isolated(text: str) -> str:
    """As it is shown if it has letters that are written from the right."""
    return f"\u2068{text}\u2069" if any(unicodedata.bidirectional(one) in ("R", "AL") for one in text) else text


async def test_a_form_an_approval_and_the_card_name_the_target_whole(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna", artifacts=HOSTS)
    await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
    form = await env["anna"].sees(modal("What should it act on?"))
    first, second = options_of(form, "target")
    assert first != second
    for host in HOSTS:
        assert f"• hostname `{plain(host['data'])}` · {host['message']}" in text_of(form)
    await env["anna"].submits(form, target=[first])
    request = await env["ben"].sees(reply_to(card, "asks · "))
    assert plain(ENCRYPTING) in request["text"]
    assert await env["anna"].sees(card_of(alert, plain(ENCRYPTING)))
    asked = text_of(await env["ben"].confirms("Approve", request))
    assert f"hostname `{plain(ENCRYPTING)}`?* · encrypts its shares" in asked
    assert plain(BACKUP) not in asked


@pytest.mark.parametrize(
    ("host", "in_ascii"), [("مضيف-المالية", "xn----zmcai5d6cxabcf4ch"), ("LТ-0901", "xn--l-0901-prf")]
)
async def test_a_host_in_other_letters_is_named_in_both_wherever_somebody_decides(
    env: FeatureEnvironment, host: str, in_ascii: str
) -> None:
    named = f"{host} ({in_ascii})"
    line = f"hostname {isolated(f'`{named}`')}"
    alert, card = await env.alert_and_card("anna", artifacts=[{"dataType": "hostname", "data": host}])
    assert line in text_of(card)
    await env["anna"].command(SOC, f"/responder run contain {alert.id} {host}")
    form = await env["anna"].sees(modal("Contain"))
    assert line in text_of(form)
    await env["anna"].presses("Ask to contain", form)
    request = await env["ben"].sees(reply_to(card, "asks · "))
    assert f"Contain on {isolated(f'hostname {named}')}?" in request["text"]
    assert line in text_of(request)
    assert await env["anna"].sees(card_of(alert, f"*Contain* on {isolated(f'hostname {named}')}"))
    assert line in text_of(await env["ben"].confirms("Approve", request))


async def test_a_look_alike_is_told_apart_where_one_of_several_is_chosen(env: FeatureEnvironment) -> None:
    alike = [{"dataType": "hostname", "data": host} for host in ("LT-0901", "LТ-0901")]
    alert = await env.create_alert(artifacts=alike)
    await env["anna"].command(SOC, f"/responder run contain {alert.id}")
    form = await env["anna"].sees(modal("What should it act on?"))
    assert options_of(form, "target") == ["`LT-0901`", "`LТ-0901 (xn--l-0901-prf)`"]
    await env["anna"].command(SOC, f"/responder run contain {alert.id} xn--l-0901-prf")
    assert "`LT-0901`" not in text_of(await env["anna"].sees(modal("hostname `LТ-0901 (xn--l-0901-prf)`")))


async def test_arabic_text_turns_nothing_around_it_from_right_to_left(env: FeatureEnvironment) -> None:
    server = {"dataType": "hostname", "data": "خادم", "message": "الخادم المالي"}
    more = {"title": "تنبيه <1>", "description": "x" * 400}
    _, card = await env.alert_and_card("anna", artifacts=[server, *HOSTS], **more)
    shown = text_of(card)
    assert f"*{isolated('تنبيه &lt;1&gt;')}*" in shown
    name, remark = "`خادم (xn--mgbne2g)`", "الخادم المالي"
    assert f"hostname {isolated(name)} · {isolated(remark)}" in shown
    assert f"hostname `{plain(ENCRYPTING)}` · encrypts its shares" in shown  # is as it was, to be copied


async def test_a_long_title_leaves_room_for_what_is_decided(env: FeatureEnvironment) -> None:
    title = f"{'Beacon to a server that is known, ' * 5}from finance"
    alert, card = await env.alert_and_card("anna", title=title, artifacts=HOSTS[:1])
    assert title in text_of(card)
    await env["anna"].command(SOC, f"/responder alert {alert.id}")
    assert title in text_of(await env["anna"].sees(modal("*Facts*")))
    await env["anna"].command(SOC, f"/responder run contain {alert.id}")
    form = await env["anna"].sees(modal("Contain"))
    short = f"{title[:53]}…{title[-26:]}"
    assert short in text_of(form)
    await env["anna"].presses("Ask to contain", form)
    request = await env["ben"].sees(reply_to(card, "asks · "))
    assert request["text"] == f"HIGH: Contain on hostname {plain(ENCRYPTING)}? {short} ({alert.id}), asked by anna"
    assert f"HIGH {short} ({alert.id})" in text_of(await env["ben"].confirms("Approve", request))
    card = await env["anna"].sees(card_of(alert, "needs 1 approval"))
    assert card["text"].endswith(f"Contain on hostname {plain(ENCRYPTING)} needs 1 approval. · {title}")


async def test_the_question_the_review_and_the_list_of_a_bulk_name_each_target_whole(env: FeatureEnvironment) -> None:
    alerts = [await env.create_alert(sourceRef=str(n), artifacts=[host]) for n, host in enumerate(HOSTS)]
    await env["ben"].sees(card_of(alerts[0]))
    await env["anna"].command(SOC, f"/responder run isolate {alerts[0].id} {alerts[1].id}")
    question = await env["anna"].sees(modal("Each is checked"))
    lines = [f"hostname `{plain(host['data'])}` · {host['message']}" for host in HOSTS]
    for line in lines:
        assert line in text_of(question)
    await env["anna"].presses("Ask to isolate (2)", question)
    message = await env["ben"].sees(message_in(SOC, ids.BULK_REVIEW))
    await env["ben"].presses("Review", message)
    review = text_of(await env["ben"].sees(modal("*Isolate on 2 targets?* ")))
    for line in lines:
        assert line in review
    await env["ben"].command(SOC, "/responder pending")
    names = "hostname " + ", ".join(plain(host["data"]) for host in HOSTS)
    await env["ben"].sees(modal(f"🟠 HIGH {names} · 1 approval, answer by"))
    await env["anna"].presses("Show each", message)
    each = await env["anna"].sees(modal("*Isolate* on 2 targets"))
    assert each["title"]["text"] == "Isolate (2)"
    for alert, line in zip(alerts, lines, strict=True):
        assert f"• 🟠 {line}, for HIGH {alert.title} ({alert.id}) · " in text_of(each)


async def test_review_cuts_a_name_so_that_it_differs_from_a_target_that_was_denied(env: FeatureEnvironment) -> None:
    hosts = ["LT-0901", *(f"{START}-node-{n:04}-{END}" for n in (1, 2))]
    of_each = [[{"dataType": "hostname", "data": host}] for host in hosts]
    ids_ = [(await env.create_alert(sourceRef=str(n), artifacts=of)).id for n, of in enumerate(of_each)]
    await env["anna"].command(SOC, f"/responder run isolate {' '.join(ids_)}")
    await env["anna"].submits(await env["anna"].sees(modal("Each is checked")))
    message = await env["ben"].sees(message_in(SOC, ids.BULK_REVIEW))
    async with CoreClient(env.core.url, env.service_key) as bot:
        (healthy,) = await env.client.actions("alert", ids_[2])
        await bot.as_user("lea").deny(healthy.id)
    await env["ben"].presses("Review", message)
    review = await env["ben"].sees(modal("*Isolate on 2 targets?* "))
    assert any(one.startswith("srv-files-of-the-f…0001-building-7") for one in filled_in(review)["decide"])


async def test_what_the_alert_says_of_a_target_stays_once_the_alert_is_a_case(env: FeatureEnvironment) -> None:
    inside = {"dataType": "hostname", "data": "LT-0198", "message": "Host inside"}
    alert, card = await env.alert_and_card("anna", artifacts=[inside])
    await env["anna"].command(SOC, f"/responder run contain {alert.id}")
    form = await env["anna"].sees(modal("LT-0198"))
    assert "*Contain on hostname `LT-0198`?* · Host inside\\n🟠 " in text_of(form)
    await env["anna"].presses("Ask to contain", form)
    request = await env["ben"].sees(reply_to(card, "asks · "))
    await env.client.create_case_from_alert(alert.id)
    asked = text_of(await env["ben"].confirms("Approve", request))
    assert "hostname `LT-0198`?* · Host inside" in asked


async def test_a_run_on_an_observable_of_a_case_shows_what_its_alert_said(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Quarantine": {"approval": 1}}) as env:
        inside = {"dataType": "ip", "data": "10.20.1.50", "message": "Host inside"}
        alert = await env.create_alert(artifacts=[inside])
        card = await env["anna"].sees(card_of(alert))
        await env.client.create_case_from_alert(alert.id)
        artifact = (await env.client.alert(alert.id)).artifacts[0]
        await env["anna"].command(SOC, f"/responder run quarantine {artifact.id}")
        request = await env["ben"].sees(reply_to(card, "asks · "))
        asked = text_of(await env["ben"].confirms("Approve", request))
        assert "ip `10[.]20[.]1[.]50`?* · Host inside" in asked


def test_no_two_texts_are_cut_to_the_same() -> None:
    names = [f"{START}-{n:03}-{END}" for n in range(100)]
    shown = clip_apart(names, 75)
    assert len({*shown}) == 100
    assert max(map(len, shown)) <= 75
    assert clip_apart(["short", ENCRYPTING], 75)[0] == "short"
    long = [
        f"srv-fileserver-production-emea-frankfurt-rack17-{what}.corp.example.net" for what in ("run-1", "backup-2")
    ]
    assert clip_apart(long, 60) == [
        "srv-fileserver-…17-run-1.corp.example.net",
        "srv-fileserver-…17-backup-2.corp.example.net",
    ]


async def test_a_menu_keeps_the_end_of_a_host_that_is_too_long_for_its_heading(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Shun": {"target": "url"}}) as env:
        host = f"login.your-bank.example.{'very-long.' * 6}of-the-evil.example"
        urls = [{"dataType": "url", "data": f"https://{host}/payload-{n}.bin"} for n in (1, 2)]
        card = await env["anna"].sees(card_of(await env.create_alert(artifacts=urls)))
        labels = [group["label"]["text"] for group in await env["anna"].searches(card, beside="payload-1")]
        shown = "url hxxps[://]login[.…y-long[.]very-long[.]of-the-evil[.]example…"
        assert labels == [f"Contain · {shown}", shown]


@pytest.mark.parametrize("scheme", ["hxxps[://]", "https://"])
def test_a_url_shows_its_host_in_full(scheme: str) -> None:
    host = "login.bank.example.with-a-long-name-of.evil.example"
    (shown,) = clip_apart([f"{scheme}{host}/{'a' * 200}?session=7"], 75)
    assert shown.startswith(f"{scheme}{host}")
    assert shown.endswith("=7")
