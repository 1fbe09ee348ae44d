"""What the card of a case says."""

import json

from bot.clearance import SHARED
from bot.features.alerts.views.case_card import MOST_COUNTED, case_card
from core.models import Document, Task
from tests.bot import samples
from tests.bot.samples import NOW, button


def test_tasks_are_counted_up_to_100() -> None:
    case = samples.case()
    made = {"created_by": "anna", "created_at": NOW, "group": "", "description": "", "order": 0}
    tasks = [Task(id_=f"~{n}", id=f"~{n}", title=f"Task {n}", **made) for n in range(31, 132)]

    def texts(number: int) -> str:
        document = Document(id=case.id, case=case)
        card = case_card(case, document, tasks[:number], [], clearance=2, button=button)
        return json.dumps(card.blocks)

    assert "0 of 100 tasks done" in texts(MOST_COUNTED)
    assert "and 92 more" in texts(MOST_COUNTED)
    assert "100+ tasks" in texts(MOST_COUNTED + 1)
    assert "and more" in texts(MOST_COUNTED + 1)


def test_a_tag_of_runs_is_shown_where_one_of_them_could_be() -> None:
    case = samples.case(tlp=0, tags=["beacon", "host-isolated"], tag_levels={"host-isolated": 2})
    document = Document(id=case.id, case=case)
    cards = [case_card(case, document, [], [], clearance=level, button=button) for level in (SHARED, 0, 1, 2)]
    tags = [["#beacon" in (text := json.dumps(card.blocks)), "#host-isolated" in text] for card in cards]
    assert tags == [[True, False]] * 3 + [[True, True]]
