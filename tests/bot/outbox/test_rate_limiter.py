"""How fast the bot speaks to Slack."""

from hypothesis import given
from hypothesis import strategies as st

from bot.outbox.models import FOR_PERSON, NEWS, OTHER
from bot.outbox.sending.rate_limiter import RateLimiter

MINUTE_MS = 60_000


@given(st.lists(st.integers(0, 3_000), min_size=60, max_size=200), st.sampled_from(["chat.update", "files.delete"]))
def test_no_minute_sees_more_updates_than_slack_takes(gaps_ms: list[int], method: str) -> None:
    rate_limiter, now, sent = RateLimiter(), 1_700_000_000_000, []
    for gap in gaps_ms:
        now += gap
        if rate_limiter.wait_ms(method, "C1", now, rank=FOR_PERSON) == 0:
            rate_limiter.record(method, "C1")
            sent.append(now)
    assert all(sum(at - MINUTE_MS < other <= at for other in sent) <= 50 for at in sent)


def test_what_a_person_caused_may_use_what_machines_must_leave() -> None:
    rate_limiter, now = RateLimiter(), 1_700_000_000_000
    while rate_limiter.wait_ms("chat.update", "C1", now, rank=NEWS) == 0:
        rate_limiter.record("chat.update", "C1")
    assert rate_limiter.wait_ms("chat.update", "C1", now, rank=FOR_PERSON) == 0


def test_news_may_use_what_progress_and_cards_of_groups_must_leave() -> None:
    rate_limiter, now, sent = RateLimiter(), 1_700_000_000_000, 0
    while rate_limiter.wait_ms("chat.update", "C1", now, rank=OTHER) == 0:
        rate_limiter.record("chat.update", "C1")
        sent += 1
    left = 0
    while rate_limiter.wait_ms("chat.update", "C1", now, rank=NEWS) == 0:
        rate_limiter.record("chat.update", "C1")
        left += 1
    assert (sent, left) == (8, 7)


def test_a_channel_takes_some_posts_at_once_then_one_a_second() -> None:
    rate_limiter, now = RateLimiter(), 1_700_000_000_000
    waits = []
    for _ in range(4):
        waits.append(rate_limiter.wait_ms("chat.postMessage", "C1", now, rank=OTHER))
        rate_limiter.record("chat.postMessage", "C1")
    assert waits[:3] == [0, 0, 0]
    assert waits[3] > 1_000
    assert rate_limiter.wait_ms("chat.postMessage", "C2", now, rank=OTHER) == 0
