"""A clock for tests: it stands until it is set."""


class SetClock:
    """Milliseconds since the epoch, as `core.clock.Clock`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms
