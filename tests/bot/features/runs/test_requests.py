"""The one way to a run: a request as text, and what becomes of what somebody confirmed."""

from hypothesis import given
from hypothesis import strategies as st

from bot.features.runs.views.request import RunRequest
from core.models import KINDS, RunTarget
from tests.bot.features.bulks.bulk import alerts
from tests.bot.features.environment import FeatureEnvironment
from tests.bot.people import modal
from tests.bot.running import SOC

words = st.text(max_size=20)
object_ids = st.integers(0, 10**18 - 1).map("~{}".format)
targets = st.lists(
    st.tuples(st.sampled_from(KINDS), object_ids, st.lists(object_ids, max_size=3)).map(
        lambda target: RunTarget(object_type=target[0], object_id=target[1], target=target[2])
    ),
    max_size=5,
).map(tuple)
json_values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words | st.lists(words, max_size=3)
requests = st.builds(
    RunRequest,
    targets=targets,
    responder_id=words,
    parameters=st.dictionaries(words, json_values, max_size=3),
    undo_after_minutes=st.none() | st.integers(0, 10_000),
    override_reason=st.none() | words,
    note=words,
    again=words,
    anyway=words,
    channel=words,
)


@given(requests)
def test_a_request_comes_back_from_its_text(request: RunRequest) -> None:
    assert RunRequest.from_text(request.to_text()) == request


@given(
    st.text() | st.sampled_from(["null", "[]", '{"targets": "~1"}', '{"targets": 5}', '{"parameters": []}', "{" * 9999])
)
def test_any_other_text_is_an_empty_request(text: str) -> None:
    assert RunRequest.from_text(text) == RunRequest()


async def test_of_several_objects_the_only_visible_one_is_asked_about(env: FeatureEnvironment) -> None:
    alert, _ = await env.alert_and_card("anna")
    open_id = alert.id
    secret = await alerts(env, 2, tlp=3, title="Nobody here reads this")
    await env["anna"].command(SOC, f"/responder run tell {open_id} {' '.join(secret)}")
    question = await env["anna"].sees(modal(f"*1 target*\\nLeft out: {', '.join(secret)}, where you see nothing."))
    assert await env.client.actions("alert", open_id) == []
    await env["anna"].presses("Tell (1)", question)
    await env["anna"].sees(modal("Started", "Started *"))
    (action,) = await env.client.actions("alert", open_id)
    assert action.created_by == "anna@responder-bot.local"
