"""Where several observables fit, somebody chooses what a run acts on: in the form, by command, for several alerts."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.clearance import Subject
from bot.features.undos import views as undos
from core.models import Alert, MeasureOfRun, TargetArtifact, Undo
from core.settings import ProtectSection, ResponderSection
from tests.bot import samples
from tests.bot.features.environment import FeatureEnvironment, feature_environment
from tests.bot.people import app_home, card_of, field_of, filled_in, modal, on_phone, reply_to, text_of
from tests.bot.running import SOC

HOSTS: list[dict[str, Any]] = [
    {"dataType": "hostname", "data": "srv-dc01", "message": "host inside"},
    {"dataType": "ip", "data": "10.20.1.50"},
    {"dataType": "ip", "data": "203.0.113.7", "message": "C2"},
    {"dataType": "hash", "data": "9f86d081884c7d659a2feaa0c55ad015"},
    {"dataType": "hostname", "data": "SRV-SECRET", "tlp": 3},
]


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[FeatureEnvironment]:
    rules = {name: {"target": "hostname,ip"} for name in ("Isolate", "Fail", "Tell")}
    rules["Shun"] = {"target": "hostname,ip", "undo": "Vendor_Drop_1_0"}
    async with feature_environment(tmp_path, rules) as environment:
        yield environment


def by_data(alert: Alert) -> dict[str, str]:
    return {artifact.data or "": artifact.id for artifact in alert.artifacts}


async def acted_on(env: FeatureEnvironment, alert: Alert) -> list[str]:
    """What the newest run on the alert acts on."""
    action = (await env.client.actions("alert", alert.id))[0]
    return [artifact.data for artifact in action.target or ()]


async def test_what_may_be_the_same_host_is_asked_about_and_names_the_one_that_waits(env: FeatureEnvironment) -> None:
    names = ("lt-0198", "lt-0198.corp.example")
    alert, _ = await env.alert_and_card("anna", artifacts=[{"dataType": "hostname", "data": name} for name in names])
    for name in names:
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        form = await env["anna"].sees(modal("What should it act on?"))
        await env["anna"].submits(form, target=[by_data(alert)[name]])
    waits = await env["anna"].sees(modal(f"already waits on hostname lt-0198, for {alert.id}. anna asked for it"))
    assert waits["submit"]["text"] == "Ask anyway"
    assert "hostname `lt-0198[.]corp[.]example`" in text_of(waits)


async def test_the_form_asks_what_to_act_on_with_nothing_chosen_and_the_approver_reads_it(
    env: FeatureEnvironment,
) -> None:
    alert, card = await env.alert_and_card("anna", artifacts=HOSTS)
    await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
    form = await env["anna"].sees(modal("What should it act on?"))
    field = field_of(form, "target")
    options = [(option["text"]["text"], option["description"]["text"]) for option in field["element"]["options"]]
    assert options == [
        ("`srv-dc01`", "hostname · host inside"),
        ("`10[.]20[.]1[.]50`", "ip"),
        ("`203[.]0[.]113[.]7`", "ip · C2"),
    ]
    assert "initial_options" not in field["element"]
    assert "SRV-SECRET" not in text_of(form)
    refused = await env["anna"].submits(form)
    assert field["block_id"] in refused["errors"]
    await env["anna"].submits(form, target=[by_data(alert)["srv-dc01"]])
    request = await env["ben"].sees(reply_to(card, "asks · "))
    assert await acted_on(env, alert) == ["srv-dc01"]
    assert "on hostname `srv-dc01`?*" in text_of(request)
    assert "on hostname srv-dc01? " in request["text"]  # what a locked phone shows
    await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
    beside = await env["anna"].sees(modal("hostname · already waiting for approval · host inside"))
    assert "already waits" not in text_of(beside)
    await env["anna"].submits(beside, target=[by_data(alert)["10.20.1.50"]])
    await env["ben"].sees(reply_to(card, "on ip `10[.]20[.]1[.]50`?*"))
    asked = text_of(await env["ben"].confirms("Approve", request))
    assert "on hostname `srv-dc01`?* · host inside\\n" in asked
    assert asked.count("srv-dc01") == 1
    assert "203[.]0[.]113[.]7" not in asked
    await env["anna"].sees(reply_to(card, f"on hostname srv-dc01, for {alert.id}, started by anna"))


async def test_what_it_acts_on_is_asked_first_with_where_each_is_from(env: FeatureEnvironment) -> None:
    found = [{"dataType": "ip", "data": data} for data in ("192.0.2.17", "192.0.2.1")]
    alert = await env.create_alert(title="Beacon from 192[.]0[.]2[.]17", artifacts=[*HOSTS[:1], *found])
    await env["anna"].command(SOC, f"/responder run shun {alert.id}")
    form = await env["anna"].sees(modal("What should it act on?"))
    options = field_of(form, "target")["element"]["options"]
    assert [one["description"]["text"] for one in options] == [
        "hostname · host inside",
        "ip · named in the title",
        "ip",
    ]
    text = text_of(form)
    assert text.index("What should it act on?") < text.index("How long") < text.index("Starts at once")


async def test_what_is_in_force_is_said_in_the_list_and_marked_first_where_somebody_ends_it(tmp_path: Path) -> None:
    rules: dict[str, dict[str, Any]] = {name: {"target": "hostname,ip"} for name in ("Shun", "Tell")}
    rules["Shun"] |= {"undo": "Tell_1_0", "undo_after_minutes": 60}
    async with feature_environment(tmp_path, rules) as env:
        alert = await env.create_alert(artifacts=HOSTS)
        idle = "*Nothing is known to be in force that these would end*"
        await env["anna"].command(SOC, f"/responder list {alert.id}")
        assert "• *Tell*" in text_of(await env["anna"].sees(modal(idle))).partition(idle)[2]
        card = await env["anna"].sees(card_of(alert))
        menu = await env["anna"].searches(card, "tell", beside="`srv-dc01`")
        assert [group["label"]["text"] for group in menu] == ["Undo · hostname srv-dc01"]
        labels = [one["label"]["text"] for one in await env["anna"].searches(card, beside="`srv-dc01`")]
        assert len(labels) == len({*labels})
        assert not [label for label in labels if label.startswith("Undo · ")]
        await env["anna"].command(SOC, f"/responder run shun {alert.id} target=10.20.1.50")
        await env["anna"].submits(await env["anna"].sees(modal("Starts at once")))
        run = await env.ended_run(alert)
        await env["anna"].command(SOC, f"/responder list {alert.id}")
        until = (run.undo.at or 0) // 1000 if run.undo else 0
        now = f"\\n    ◦ 🔒 `10[.]20[.]1[.]50` is contained already until <!date^{until}^"
        shown = await env["anna"].sees(modal(now))
        listed = text_of(shown)
        assert "• *Tell*: 10[.]20[.]1[.]50\\n" in listed  # and not what else it could act on
        assert listed.partition(idle)[0].count(now) == 2  # of Shun, and of Tell, which ends it
        assert f" by anna, for {alert.id}." in listed
        assert f"{run.id} has it in force" not in listed
        assert "• *Tell*" not in listed.partition(idle)[2]
        heading = "*In force already, and what ends it*"
        assert listed.index("• *Shun*") < listed.index(heading) < listed.index("• *Tell*")
        labels = [one["label"]["text"] for one in await env["anna"].searches(shown)]
        assert [label for label in labels if label.startswith("Undo · ")] == [f"Undo · Alert {alert.id}"]
        await env["anna"].command(SOC, f"/responder run tell {alert.id}")
        form = await env["anna"].sees(modal("What should it act on?"))
        options = field_of(form, "target")["element"]["options"]
        assert [one["description"]["text"] for one in options] == [
            "ip · contained by anna",
            "hostname · not known to be contained · host inside",
            "ip · not known to be contained · C2",
        ]
        assert "🔒 `10[.]20[.]1[.]50` is contained until <!date^" in text_of(form)


@pytest.mark.parametrize(
    ("typed", "data"),
    [
        ("srv-dc01", ["srv-dc01"]),
        ("10[.]20.1.50", ["10.20.1.50"]),
    ],
)
async def test_a_command_names_what_to_act_on_in_any_spelling(
    env: FeatureEnvironment, typed: str, data: list[str]
) -> None:
    alert, _ = await env.alert_and_card("anna", artifacts=HOSTS)
    await env["anna"].command(SOC, f"/responder run shun {alert.id} target={typed}")
    question = await env["anna"].sees(modal("It can be undone there"))
    assert question["title"]["text"] == "Shun"
    assert "With a time it ends by itself (Drop traffic); *Undo now* ends it at any moment." in text_of(question)
    assert text_of(question).count("srv-dc01") == ("srv-dc01" in data)
    await env["anna"].presses("Shun", question)
    on = f"{'hostname' if 'srv' in typed else 'ip'} {data[0].replace('.', '[.]')}"
    await env["anna"].sees(card_of(alert, f"*Shun* on {on}"))
    assert await acted_on(env, alert) == data
    await env["anna"].command(SOC, f"/responder run isolate {alert.id} target={typed}")
    await env["anna"].reads("waits for approval")
    await env["ben"].open_home()
    await env["ben"].sees(app_home(f"*Isolate on {on}?* · anna"))


@pytest.mark.parametrize(
    "typed",
    [
        "10.20.1.50 SRV-DC01",
        "srv-dc01,10[.]20[.]1[.]50",
        "target=10.20.1.50,SRV-dc01",
        "srv-dc01 and 10.20.1.50",
        "on srv-dc01, 10.20.1.50 for 2 h",
    ],
)
async def test_of_several_observables_behind_the_name_each_is_a_target(env: FeatureEnvironment, typed: str) -> None:
    alert = await env.create_alert(artifacts=HOSTS)
    await env["anna"].command(SOC, f"/responder run shun {alert.id} {typed}")
    if "for" in typed:
        await env["anna"].reads("Nothing was run. The form of Shun asks how long: type the command without 'for'.")
        await env["anna"].command(SOC, f"/responder run shun {alert.id} {typed.removesuffix(' for 2 h')}")
    form = await env["anna"].sees(modal("*Shun* on *2 targets in 1 alert*", "*Runs on 2 targets*"))
    assert text_of(form).count(f", for HIGH ET MALWARE Beacon to known C2 ({alert.id})") == 2
    await env["anna"].presses("Shun (2)", form)
    await env["anna"].sees(modal("Started *Shun* on ", "hostname srv-dc01", "ip 10[.]20[.]1[.]50"))
    actions = await env.client.actions("alert", alert.id)
    assert sorted(one.data for run in actions for one in run.target or ()) == ["10.20.1.50", "srv-dc01"]


async def test_of_several_observables_the_one_that_does_not_fit_is_named(env: FeatureEnvironment) -> None:
    alert = await env.create_alert(artifacts=HOSTS)
    for wrong, why in (
        ("203.0.113.9", f"{alert.id} shows you no observable '203.0.113.9'."),
        (
            "9f86d081884c7d659a2feaa0c55ad015",
            "but not on '9f86d081884c7d659a2feaa0c55ad015'.",
        ),
        ("nonsense", f"On {alert.id} Shun can act on hostname `srv-dc01` · host inside, "),
        ("and LT-7", "but not on 'LT-7'. Nothing was run."),
    ):
        await env["anna"].command(SOC, f"/responder run shun {alert.id} srv-dc01 {wrong}")
        await env["anna"].reads(why)
    assert await env.client.actions("alert", alert.id) == []


async def test_a_command_chooses_nothing_that_is_only_alike(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Shun": {"target": "url"}}) as env:
        urls = [{"dataType": "url", "data": f"{scheme}://files.example/a"} for scheme in ("http", "https")]
        alert = await env.create_alert(artifacts=urls)
        await env["anna"].command(SOC, f"/responder run shun {alert.id} target=https://files.example/A")
        await env["anna"].reads("but not on 'hxxps[://]files[.]example/A'")
        await env["anna"].command(SOC, f"/responder run shun {alert.id} target=hxxps://files[.]example/a")
        question = await env["anna"].sees(modal("It can be undone there"))
        await env["anna"].presses("Shun", question)
        assert await acted_on(env, alert) == ["https://files.example/a"]


@pytest.mark.parametrize(
    "typed", ["target=web-3", "target=9f86d081884c7d659a2feaa0c55ad015", "target=srv-secret", "web-3"]
)
async def test_what_does_not_fit_or_may_not_be_seen_is_refused_with_what_fits(
    env: FeatureEnvironment, typed: str
) -> None:
    alert = await env.create_alert(artifacts=HOSTS)
    await env["anna"].command(SOC, f"/responder run tell {alert.id} {typed}")
    told = text_of(await env["anna"].reads(f"On {alert.id} Tell can act on "))
    assert "hostname `srv-dc01` · host inside" in told
    assert "SRV-SECRET" not in told
    assert await env.client.actions("alert", alert.id) == []


async def test_run_again_acts_on_the_same(env: FeatureEnvironment) -> None:
    alert = await env.create_alert(artifacts=HOSTS)
    await env["anna"].sees(card_of(alert))
    await env["anna"].command(SOC, f"/responder run fail {alert.id} target=srv-dc01")
    failed = await env["anna"].sees(card_of(alert, "*Fail* on hostname srv-dc01 failed"))
    first = (await env.ended_run(alert)).id
    await env["anna"].presses("Run again", failed)
    await env["anna"].sees(card_of(alert, "*Fail* on hostname srv-dc01: 2 runs"))
    assert (await env.ended_run(alert)).id != first
    assert await acted_on(env, alert) == ["srv-dc01"]


async def test_for_several_alerts_one_chooses_for_each_in_the_form(env: FeatureEnvironment) -> None:
    long = f"srv-{'a' * 50}-node-0002-building-7"
    first, second, third = [
        await env.create_alert(sourceRef=str(n), artifacts=artifacts)
        for n, artifacts in enumerate((HOSTS, [*HOSTS, {"dataType": "hostname", "data": long}], HOSTS[:1]))
    ]
    await env["anna"].command(SOC, f"/responder run tell {first.id[1:]}, {second.id[1:]} and {third.id[1:]}")
    form = await env["anna"].sees(modal("What should it act on?"))
    field = field_of(form, "target")
    labels = [group["label"]["text"] for group in field["element"]["option_groups"]]
    assert [label.partition(" ")[0] for label in labels] == [first.id, second.id]
    assert f"• 🟠 hostname `srv-dc01` · host inside, for HIGH {third.title} ({third.id})" in text_of(form)
    await env["anna"].submits(form, target=[by_data(first)["203.0.113.7"]])
    assert "An alert is left out if you choose nothing of it." in text_of(form)
    assert f"*Cut below, here in full*\\n• hostname `{long}` ({second.id})" in text_of(form)
    left_out = f"\\nLeft out, as not chosen: HIGH {second.title} ({second.id})."
    await env["anna"].sees(modal("Started *Tell* on ", left_out, without="Refused"))
    assert [await acted_on(env, alert) for alert in (first, third)] == [["203.0.113.7"], ["srv-dc01"]]
    assert await env.client.actions("alert", second.id) == []
    await env["anna"].command(SOC, f"/responder run tell {second.id} {first.id}")  # one is left
    form = await env["anna"].sees(modal("What should it act on?", without=third.id))
    assert field_of(form, "target")["block_id"] in (await env["anna"].submits(form))["errors"]
    await env["anna"].submits(form, target=[by_data(first)["srv-dc01"]])
    await env["anna"].sees(modal("Started *Tell* on hostname srv-dc01"))
    assert await acted_on(env, first) == ["srv-dc01"]
    await env["anna"].command(SOC, f"/responder run tell {second.id} {third.id}")  # nothing is chosen of the one
    form = await env["anna"].sees(modal("What should it act on?", "An alert is left out"))
    await env["anna"].submits(form)
    await env["anna"].sees(modal("Started *Tell* on hostname srv-dc01", left_out))
    assert await acted_on(env, third) == ["srv-dc01"]
    assert await env.client.actions("alert", second.id) == []


async def test_a_command_for_several_names_the_same_on_each(env: FeatureEnvironment) -> None:
    alerts = [await env.create_alert(sourceRef=str(n), artifacts=HOSTS) for n in range(2)]
    await env["anna"].command(SOC, f"/responder run tell {' '.join(one.id for one in alerts)} target=srv-dc01")
    question = await env["anna"].sees(modal("Each is checked"))
    await env["anna"].presses("Tell (2)", question)
    await env["anna"].sees(modal("Started *Tell* on "))
    assert [await acted_on(env, alert) for alert in alerts] == [["srv-dc01"], ["srv-dc01"]]


async def test_what_may_act_on_anything_says_so(env: FeatureEnvironment) -> None:
    alert, card = await env.alert_and_card("anna", artifacts=HOSTS[:3])
    await env["anna"].command(SOC, f"/responder run contain {alert.id}")
    question = await env["anna"].sees(modal("Cuts the host off."))
    assert f" · {alert.id}\\nIt gets the alert's 3 observables, and may act on any: hostname" in text_of(question)
    await env["anna"].presses("Ask to contain", question)
    request = await env["ben"].sees(reply_to(card, "asks · "))
    form = await env["ben"].confirms("Approve", request)
    assert "It may act on any of 3 observables:" in text_of(form)


async def test_what_only_tells_says_where_and_acts_on_nothing(tmp_path: Path) -> None:
    close, webhook = "ResponderBot_CloseAsFalsePositive_1_0", "ResponderBot_Webhook_1_0"
    to = {"URL": "https://hook:k3y@tickets.example:8443/services/T0/B0?code=s3cret"}  # as environment variables have it
    sections = {webhook: ResponderSection(config=to, confirm="Opens a ticket.", approval=1), close: ResponderSection()}
    mail = {"smtp_host": "127.0.0.1", "from": "bot@corp.example", "to": ["soc@corp.example", "on-call@corp.example"]}
    sections["ResponderBot_Mail_1_0"] = ResponderSection(config=mail)
    async with feature_environment(tmp_path, {"Shun": {"undo": "Tell_1_0"}}, responder=sections) as env:
        alert, card = await env.alert_and_card("anna", artifacts=HOSTS[:3])
        await env.client.run({"responderId": "Shun_1_0", "objectType": "alert", "objectId": alert.id})
        await env.ended_run(alert)  # which closed it
        await env.client.mark_alert_unread(alert.id)
        await env["anna"].command(SOC, f"/responder run mail {alert.id}")
        told = await env["anna"].sees(modal("It sends what it gets to `soc@corp.example`, `on-call@corp.example`, and"))
        await env["anna"].close(told["id"])
        await env["anna"].command(SOC, f'/responder run "Close As False Positive" {alert.id}')
        form = await env["anna"].sees(modal("Reopen in its menu"))
        assert not re.search("observable|It puts|No button|Stop", text_of(form))
        assert [*filled_in(form)] == ["reason"]  # and no note, which would ask the same
        await env["anna"].command(SOC, f"/responder run webhook {alert.id}")
        question = await env["anna"].sees(modal("Opens a ticket."))
        got = "It gets the alert's 3 observables: hostname srv-dc01, ip 10[.]20[.]1[.]50, ip 203[.]0[.]113[.]7."
        assert got in text_of(question)
        sent = "Opens a ticket.\\nIt sends what it gets to `tickets.example`, and nothing calls that back."
        assert f">{sent}" in text_of(question)
        assert not re.search("No button|It puts|k3y|8443|services|s3cret|in force", text_of(question))
        await env["anna"].presses("Ask to send", question)
        request = await env["ben"].sees(reply_to(card, "asks · "))
        approval = text_of(await env["ben"].confirms("Approve", request))
        assert "It gets 3 observables:" in approval
        assert "It puts nothing in force." in approval
        assert sent in approval


def test_a_thread_tells_of_each_target_that_was_not_undone() -> None:
    states: dict[str, dict[str, Any]] = {
        "web-1": {"status": "failed", "message": "It was no use"},
        "web-2": {"status": "available"},
    }
    states["web-3"] = {"status": "waiting", "message": "Nobody may", "at": samples.NOW}
    target = [TargetArtifact(id=f"~{n}", data_type="hostname", data=name, tlp=1) for n, name in enumerate(states, 1)]
    of_targets = [
        {"id": f"~5{n}", "target": f"~{n}", "state": "in_force", "since": samples.NOW, "undo": state}
        for n, state in enumerate(states.values(), 1)
    ]
    measure = MeasureOfRun.model_validate({"state": "in_force", "since": samples.NOW, "targets": of_targets})
    undo = Undo.model_validate({"responder": "Release_1_0", **states["web-3"]})
    action = samples.ended(target=target, measure=measure, undo=undo)

    subject = Subject("alert", "~12", "t", 1)
    intents = samples.intents_in(lambda button: undos.problem_reply(action, subject, (), clearance=2, button=button))
    assert {(one.what, one.argument) for one in intents} == {("undo", "~51"), ("undo", "~53"), ("extend", "~53")}
    first, second = (
        text_of(block)
        for block in undos.problem_reply(action, subject, (), clearance=2, button=samples.button).blocks
        if block["type"] == "section"
    )
    assert re.search(r"Not undone: .*web-1\b.* · It was no use\.", first)
    assert re.search(r"Still in force, .*: .*web-3\b.* · Nobody may\.", second)


async def test_what_is_protected_has_no_box_but_a_line(tmp_path: Path) -> None:
    rules = {"Isolate": {"target": "hostname,ip"}, "Shun": {"target": "hostname,ip"}}
    entries = tmp_path / "protected.txt"
    entries.write_text("10.20.0.0/16\nSRV-SECRET\n")
    async with feature_environment(tmp_path, rules, protect=ProtectSection(artifacts=[f"file:{entries}"])) as env:
        alert = await env.create_alert(artifacts=[HOSTS[0], {**HOSTS[1], "message": "victim"}, *HOSTS[2:]])
        await env["anna"].command(SOC, f"/responder run isolate {alert.id}")
        form = await env["anna"].sees(modal("What should it act on?"))
        field = field_of(form, "target")
        descriptions = [option["description"]["text"] for option in field["element"]["options"]]
        assert descriptions == ["hostname · host inside", "ip · C2"]
        assert re.findall(r"Not offered: (.+?) is protected", text_of(form)) == ["10[.]20[.]1[.]50 (victim)"]
        entries.write_text("10.20.0.0/16\nSRV-SECRET\n203.0.113.7\n")  # while the form is open
        refused = await env["anna"].submits(form, target=[by_data(alert)["203.0.113.7"]])
        why = (
            f"Isolate can't run on {alert.id}: 203[.]0[.]113[.]7 is protected; an administrator may "
            "override it, with a reason and another administrator's approval. Nothing was run."
        )
        assert refused["errors"] == {field["block_id"]: why}
        assert await env.client.actions("alert", alert.id) == []
        await env["anna"].command(SOC, f"/responder list {alert.id}")
        listed = text_of(await env["anna"].sees(modal("Can run (")))
        assert "10[.]20[.]1[.]50 (victim) is protected (10[.]20[.]0[.]0/16)" in listed
        assert "• *Shun*: srv-dc01\\n" in listed  # what is protected is not to be chosen
        assert "• *Unblock*: 9f86d081884c7d659a2feaa0c55ad015 · Take an address" in listed  # no list has srv-dc01
        assert not re.search("secret is protected", listed, re.IGNORECASE)
        acting = [line.partition(" (~")[0] for line in listed.split("\\n") if re.match(r"• .* \(~.*Isolate", line)]
        assert acting == ["• hostname srv-dc01"]


async def test_what_is_protected_is_refused_as_soon_as_it_is_named_and_an_administrator_may_override_it(
    tmp_path: Path,
) -> None:
    rules = {"Shun": {"target": "hostname,ip", "undo": "Vendor_Drop_1_0", "undo_after_minutes": 60, "rate": ["9/1h"]}}
    rules["Shun"]["allow_permanent"] = True
    async with feature_environment(tmp_path, rules, protect=ProtectSection(artifacts=["10.20.0.0/16"])) as env:
        first, other = [
            await env.create_alert(sourceRef=ref, artifacts=[HOSTS[0], {**HOSTS[1], "message": "victim"}, HOSTS[2]])
            for ref in ("1", "2")
        ]
        await env["anna"].command(SOC, f"/responder run shun {first.id}")
        await env["anna"].sees(modal("Limit for everybody together: 9 runs in 1 hour. Choose all that you need now."))
        why = "10[.]20[.]1[.]50 (victim) is protected (10.20.0.0/16)"
        await env["anna"].command(SOC, f"/responder run shun {first.id} 10.20.1.50")
        cannot = f"*Shun* can't run on {first.id}: {why}. Nothing was run."
        await env["anna"].sees(modal(f"{cannot}\\nAdmin or lea may override it"))
        await env["anna"].command(SOC, f"/responder run shun {first.id} 203.0.113.7, 10[.]20[.]1[.]50")
        two = await env["anna"].sees(modal("*Shun* on *1 target*; *1 will be refused*", "Shun (1)"))
        refused = f"ip `10[.]20[.]1[.]50` · victim, for HIGH {first.title} ({first.id}): 10[.]20[.]1[.]50 (victim) is"
        assert refused in text_of(two).partition("*Will be refused on 1 target*")[2]
        await env["anna"].close(two["id"])
        await env["anna"].command(SOC, f"/responder run shun {first.id} {other.id} target=10.20.1.50")
        form = await env["anna"].sees(modal("Will be refused", "10[.]20[.]1[.]50 (victim) is protected"))
        assert not form["submit"]
        await env["lea"].command(SOC, f"/responder run shun {first.id} 10.20.1.50")
        await env["lea"].presses("Override ...", await env["lea"].sees(modal("is protected")))
        await env["lea"].submits(
            await env["lea"].sees(modal("🔴 *Against the rules*: 10[.]20[.]1[.]50 (victim) is protected")),
            override="It spreads",
        )
        rule = "10[.]20[.]1[.]50 is protected (10.20.0.0/16)"
        await env["ben"].sees(card_of(first, f"🔴 *Override* ({rule}): "))
        assert await acted_on(env, first) == ["10.20.1.50"]
        await env.core.core.people.set_profile("anna", "org-admin")
        await env["anna"].connect()
        (action,) = await env.client.actions("alert", first.id)
        await env.client.approve(action.id)
        shown = await env["lea"].sees(card_of(first, "Extend"))
        await env["lea"].presses("Extend", shown)
        form = await env["lea"].sees(modal('*lea* asked for it · 🔴 *Override*: \\"It spreads\\". It ends <!date^'))
        who = "Asks the administrators admin and anna; one of them approves. Otherwise it ends <!date^"
        assert who in text_of(form)
        await env["lea"].submits(form, longer="+15 minutes")
        push = await env["anna"].sees(on_phone("keep Shun"))
        assert push.startswith("HIGH: OVERRIDE: keep Shun on ip 10[.]20[.]1[.]50 for 15 minutes longer? ")
        assert push.endswith(", asked by lea · Against the rules: 10[.]20[.]1[.]50 is protected (10.20.0.0/16)")
        waits = await env["anna"].sees(card_of(first, "*lea* asks"))
        await env["anna"].presses("Approve", waits)
        override = "*Shun* on ip `10[.]20[.]1[.]50` · victim\\n*lea* asks"
        review = await env["anna"].sees(modal("Keep 15 minutes longer?", override))
        assert text_of(review).count("10[.]20[.]1[.]50` ") == 1
        assert f'\\n🔴 *Override* ({rule}) by lea: \\"It spreads\\"' in text_of(review)
        await env["anna"].submits(review)
        await env["anna"].sees(modal("You approved more time for *Shun*", "lea is notified."))
