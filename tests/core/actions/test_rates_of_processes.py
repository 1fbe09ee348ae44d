"""A rate holds for all cores on a database, however many requests come at once, and across kill -9."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from core.common.errors import ResponderBotError
from core.models import Action
from tests.core.core_process import alert_in, core_process, run_body, setup_in

REQUESTS = 200


async def test_of_200_requests_at_once_to_two_processes_five_run_and_no_more_after_kill_9(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path, responders={"Stepwise": {"rate": ["5/1h"]}})
    async with AsyncExitStack() as stack:
        cores = [await stack.enter_async_context(core_process(setup)) for _ in range(2)]
        body = run_body(await alert_in(cores[0]), parameters={"runs": str(setup.runs("five"))})
        answers = await asyncio.gather(
            *(cores[number % 2].client().run(body) for number in range(REQUESTS)), return_exceptions=True
        )
        started = [answer for answer in answers if isinstance(answer, Action)]
        codes = Counter(answer.code for answer in answers if isinstance(answer, ResponderBotError))
        assert (len(started), codes) == (5, {"rate_limited": REQUESTS - 5})
        for core in cores:
            await core.kill()
    async with core_process(setup) as again:
        with pytest.raises(ResponderBotError, match="the limit of 5 runs in 1 hour is reached; free again at"):
            await again.client("ben").run(body)
        assert [(await again.ended(action.id)).status for action in started] == ["Success"] * 5
    assert setup.counted("five") == 5
