"""A report says the same whichever engine ran the responder."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from core.engines.cortex.http import CortexAnswer
from core.engines.cortex.translate import parse_update
from core.engines.job_folder import RunFacts
from core.engines.run_report import RunOutput, interpret

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
FULL = st.fixed_dictionaries({}, optional={"message": JSON, "Message": JSON, "other": JSON})
SUCCESSES = st.fixed_dictionaries(
    {"success": st.just(True)}, optional={"full": FULL | JSON, "summary": JSON, "artifacts": JSON, "operations": JSON}
)


@given(SUCCESSES)
@example({"success": True, "full": {"Message": "done"}, "summary": "x", "artifacts": "x", "operations": {"type": 1}})
def test_a_success_says_the_same_on_every_engine(output: dict[str, Any]) -> None:
    local = interpret(RunFacts(1, frozenset(), (), {}), RunOutput(output, "", ""), "", "")
    job = {"id": "AXj1", "status": "Success", "report": output}
    remote = parse_update(CortexAnswer(200, job)).report
    assert remote == local
    assert local.success == isinstance(output.get("full"), dict)
    if local.success:
        entries = output.get("operations")
        expected = entries if isinstance(entries, list) else [entry for entry in [entries] if entry is not None]
        assert local.operations == tuple(expected)
