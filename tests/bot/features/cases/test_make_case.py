"""A responder that reads the case leads on an alert from its refusal to the case, and on to the run."""

from pathlib import Path

from tests.bot.features.environment import feature_environment
from tests.bot.people import card_of, modal, text_of
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
        card = await env["anna"].sees(card_of(alert))
        group, *_ = await env["anna"].searches(card, "isolate", beside="srv-7")
        (option,) = group["options"]
        assert "needs a case" in option["description"]["text"]
        await env["anna"].chooses(option["text"]["text"], card, beside="srv-7")
        refused = await env["anna"].reads("it reads the case, and there is none; make a case of the alert")
        await env["anna"].presses("Make a case", refused)
        question = await env["anna"].sees(modal("Takes the host off the network"))
        assert "srv-7" in text_of(question)
        case_id = (await env.client.alert(alert.id)).case
        assert case_id is not None
        await env["anna"].submits(question)
        await env["anna"].sees(card_of(alert, f"Isolated for case {case_id}"))
