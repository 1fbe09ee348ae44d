"""Each measurement runs, at a size at which its figures mean nothing; no time is asserted."""

from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench import table
from tests.bench.comparison import SMALL, Goal, Row, Spread


@pytest.mark.bench
@pytest.mark.parametrize("name", bench.MEASUREMENTS)
async def test_a_measurement_runs(name: str, tmp_path: Path) -> None:
    rows = await bench.measurement(name)(tmp_path, SMALL)
    assert rows
    assert all(row.ratio.minimum <= row.ratio.median <= row.ratio.maximum for row in rows)


def test_a_row_says_whether_its_goal_is_met() -> None:
    row = Row("a", "1/s", "b", "2/s", Spread(0.5, 0.4, 0.6), Spread(1.0, 0.99, 1.01), Goal("at most", 0.5))
    assert table.cells(row) == ("a", "1/s", "b: 2/s", "0.5 (0.4 to 0.6)", "at most 0.5", "yes", "0.99 to 1.01")
    assert table.markdown([row]).startswith("| measurement | responder-bot | peer |")
