"""What a release ends, and who hears of it."""

from bot.clearance import RedactedView, Subject
from bot.features.runs.views import undo_state
from core.models import Measure
from tests.bot import samples


def test_all_who_hear_of_a_run_are_named_though_some_of_them_hear_of_another_one() -> None:
    run = {"title": "Isolate", "rootId": "~12", "state": "in_force", "since": samples.NOW}
    both = {**run, "createdBy": "ben", "approvedBy": ["rob"]}
    all_three = {**run, "createdBy": "anna", "approvedBy": ["ben", "rob"], "actions": ["~20", "~30"], "others": [both]}
    of = {"id": "~20", "responderName": "Isolate_1_0", "objectType": "Alert", "objectId": "~12"}
    view = RedactedView(Subject.alert(samples.alert()), 3)
    told = [
        line.rpartition("for ~12. ")[2]
        for line in undo_state.all_ended([Measure.model_validate({**all_three, **of})], view, "lea")
    ]
    assert told == ["anna, ben and rob are notified.", "ben and rob are notified."]


def test_who_may_decide_on_a_part_only_is_named_in_one_order() -> None:
    some = ["zoe", "kim", "lea", "ben", "ida", "max", "eve", "tom"]
    able = undo_state.Able.on([("one host", some), ("another", [*some, "ann"])])
    assert able.only == ", on one host only ben, eve, ida and others"
