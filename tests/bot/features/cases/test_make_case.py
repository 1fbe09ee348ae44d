"""A responder that reads the case leads on an alert from its refusal to the case, and on to the run."""

from pathlib import Path

from bot.block_kit import ids
from tests.bot.features.approvals.test_decisions import button
from tests.bot.features.environment import card_in, feature_environment, fine, text_of, topmost
from tests.bot.running import SOC
from tests.responder_folders import write_responder

PROGRAM = """
import json, pathlib, sys
job = pathlib.Path(sys.argv[1])
case = json.loads((job / "input" / "input.json").read_text())["data"]["case"]
report = {"success": True, "full": {"message": f"Isolated for case {case['id']}"}}
(job / "output" / "output.json").write_text(json.dumps(report))
"""


async def test_what_needs_a_case_makes_it_and_goes_on(tmp_path: Path) -> None:
    name = "MSDefender-IsolateMachine"
    write_responder(tmp_path / "responders", name, PROGRAM, dataTypeList=["thehive:case_artifact"])
    async with feature_environment(tmp_path) as env:
        alert = await env.create_alert(artifacts=[{"dataType": "hostname", "data": "srv-7"}])
        card = await env.card_of("anna", alert)
        (host,) = alert.artifacts
        menu = {"action_id": ids.numbered(ids.MENU, host.id)}
        ((group, *_),) = [await env["anna"].options(SOC, card["ts"], query="isolate", **menu)]
        ((value, about),) = [(one["value"], one["description"]["text"]) for one in group["options"]]
        assert "needs a case" in about
        await env["anna"].click(SOC, card["ts"], **menu, value=value)
        refused = await env.told("anna", "it reads the case, and there is none; make a case of the alert")
        await env["anna"].click(None, view_id=refused["id"], action_id=button(refused, ids.MAKE_CASE))
        question = fine(await env.until("anna", topmost(ids.NOTICE_VIEW, "Takes the host off the network")))
        assert "srv-7" in text_of(question)
        case_id = (await env.client.alert(alert.id)).case
        assert case_id is not None
        await env["anna"].click(None, view_id=question["id"], action_id=button(question, ids.RUN))
        await env.until("anna", lambda view: card_in(view, SOC, alert.id, f"Isolated for case {case_id}"))
