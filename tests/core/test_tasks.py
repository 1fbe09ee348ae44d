"""What core repeats for as long as it runs."""

import asyncio

from structlog.testing import capture_logs

from core.common.errors import ResponderBotError
from core.common.tasks import Backoff, cancel_and_wait, repeat


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


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 10.0)
    assert [backoff.after(failures) for failures in (1, 2, 3, 4, 5, 6, 10_000)] == [0.5, 1, 2, 4, 8, 10, 10]


async def test_what_fails_is_done_again_after_the_pauses_of_its_backoff() -> None:
    failures, done = iter([KeyError("odd"), KeyError("odd")]), asyncio.Event()

    async def work() -> None:
        for error in failures:
            raise error
        done.set()

    task = asyncio.create_task(repeat("checks", 3_600, work, backoff=Backoff(0.001, 0.002)))
    await done.wait()
    await cancel_and_wait(task)
