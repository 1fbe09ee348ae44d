"""Lists, menus, and an alert in full."""

from contextvars import copy_context
from typing import Any

import pytest

from bot.block_kit.text import NAMES, slack_date
from bot.clearance import RedactedView, Subject
from bot.features.alerts.views.details import alert_in_full, found_alerts
from bot.features.responders.views import responder_list, responder_options
from bot.features.runs.views.runs import action_list
from core.models import Alert, OfferedTarget, TargetArtifact
from tests.bot.samples import NOW, alert, artifact, awaiting, button, card, document, ended, responder, texts_of

SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def test_a_hash_is_whole_on_its_card_and_keeps_both_ends_in_a_menu() -> None:
    file = artifact(data_type="hash", data=SHA256)
    about, scan = alert(artifacts=[file]), responder()
    options = responder_options([scan], {file.id: [scan.name]}, RedactedView(Subject.alert(about), 2), SHA256)
    assert [group["label"]["text"] for group in options["option_groups"]] == [
        "hash 9f86d081884c7d659a2feaa0…5d6c15b0f00a08"
    ]
    assert texts_of(card(artifacts=[file]))[1].split("`")[1] == SHA256
    shown = alert_in_full(about, document(about), clearance=2, button=button)
    assert f"hash `{SHA256}`" in "\n".join(texts_of(shown))


@pytest.mark.parametrize(  # with and without more room, and where not even the host fits
    ("host_name", "is_whole"), [("very-long-subdomain", True), ("very-long-subdomains", True), ("very.long" * 9, False)]
)
def test_a_menu_shows_the_host_of_a_url_in_full_or_its_end(host_name: str, is_whole: bool) -> None:
    host = host_name + ".of.a.bank.example"
    paths = [f"/{'a' * 60}{n}{'b' * 60}/payload.bin" for n in (1, 2)]
    urls = [artifact(n, data_type="url", data=f"http://{host}{path}") for n, path in enumerate(paths)]
    on = TargetArtifact(id=urls[0].id, data_type="url", data=urls[0].data or "", kind="url", tlp=2)
    scan = responder("Scan", target=OfferedTarget(data_types=[], artifacts=[on], total=1, required=False))
    offered, by_artifact = [scan], {one.id: [scan.name] for one in urls}
    view = RedactedView(Subject.alert(alert(artifacts=urls)), 2)
    groups = responder_options(offered, by_artifact, view, "scan")["option_groups"]
    labels = [group["label"]["text"] for group in groups]
    shown = host.replace(".", "[.]")
    shown = f"hxxp[://]{shown}" if is_whole else "of[.]a[.]bank[.]example…"
    assert all(shown in label for label in labels[1:])
    assert len(set(labels)) == 3
    assert shown in groups[0]["options"][0]["description"]["text"]


def test_details_and_found_alerts_say_what_became_of_an_alert_as_its_card_does() -> None:
    def shown(about: Alert) -> list[str]:
        facts = texts_of(alert_in_full(about, document(about), clearance=2, button=button))[2]
        found = texts_of(found_alerts({about.id: [about]}, "x", "", (), more=False, clearance=2, button=button))[1]
        return [facts.split("\n")[2], found.split(" · ")[2]]

    assert shown(alert(assignee="ben@soc.example")) == ["• Status: new · assigned to *ben*", "new"]
    closed = alert(status="Ignored", updated_by="ben@soc.example", updated_at=NOW)
    when = slack_date(NOW, "{date_short_pretty} {time}")
    assert shown(closed) == [f"• Status: *closed* by ben, {when}", "closed"]


def test_details_offer_what_can_be_done_with_an_alert_as_it_is() -> None:
    def labels(**more: Any) -> list[str]:
        about = alert(**more)
        shown = alert_in_full(about, document(about), clearance=2, button=button)
        row = next(block["elements"] for block in shown.blocks if block["type"] == "actions")
        return [one["text"]["text"] for one in row if "text" in one]

    assert labels() == ["Assign to me"]
    assert labels(status="Ignored") == ["Reopen"]
    assert labels(status="Ignored", assignee="ben@soc.example") == ["Reopen", "Unassign"]
    assert labels(status="Imported", case="~30") == ["Show case"]
    assert labels(status="Updated", case="~30") == ["Assign to me", "Show case"]


def test_what_ran_counts_the_open_ones() -> None:
    actions, view = [awaiting(), ended(number=41)], RedactedView(Subject.alert(alert()), 2)
    ran = action_list(actions, "~12", {action.id: view for action in actions}, total=2)
    assert ran.text == "2 runs on ~12, 1 of them open"


def test_a_menu_names_people_and_a_note_names_the_account_that_is_a_target() -> None:
    """A person's name in Slack, which they choose, never replaces what a run acts on."""
    here, view = copy_context(), RedactedView(Subject.alert(alert()), 2)
    here.run(NAMES.set, {"kai@corp.example": "Kai"})
    alike = "kai@corp.example looks like kai@corp.test, which ~12 has in force"
    offered = [
        responder("Suspend", reasons=[alike]),
        responder("Tell", verdict="cannot_run", reasons=["only kai@corp.example may run it"]),
    ]
    options = here.run(responder_options, offered, {}, view, "")["option_groups"]
    assert options[1]["options"][0]["description"]["text"] == "only Kai may run it"
    listed = here.run(
        lambda: responder_list(offered, {}, view.subject, clearance=2, button=button, command="/responder")
    )
    text = "\n".join(texts_of(listed))
    assert "only Kai may run it" in text
    assert "kai[@]corp[.]example looks like kai[@]corp[.]test, which ~12 has in force" in text
