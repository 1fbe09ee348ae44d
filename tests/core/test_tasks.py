"""What core repeats for as long as it runs."""

import asyncio

from structlog.testing import capture_logs

from core.common.errors import ResponderBotError
from core.common.tasks import cancel_and_wait, repeat


async def test_errors_are_logged_and_end_nothing_and_a_cancelled_task_ends() -> None:
    outcomes = iter([ResponderBotError("unavailable", "The disk is full."), KeyError("odd"), None])
    done = asyncio.Event()

    async def work() -> None:
        outcome = next(outcomes)
        if outcome is not None:
            raise outcome
        done.set()
        await asyncio.Event().wait()

    with capture_logs() as logged:
        task = asyncio.create_task(repeat("checks", 0, work))
        await done.wait()
        await cancel_and_wait(task)
    assert task.cancelled()
    assert logged == [
        {"event": "work_failed", "work": "checks", "reason": "The disk is full.", "log_level": "warning"},
        {"event": "work_failed", "work": "checks", "exc_info": True, "log_level": "error"},
    ]
