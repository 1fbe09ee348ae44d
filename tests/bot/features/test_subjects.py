"""Which alerts a search shows."""

from collections.abc import Iterator
from itertools import islice

from bot.features.subjects import showing
from core.models import Alert
from tests.bot import samples as make


def test_no_more_alerts_are_looked_through_than_are_shown() -> None:
    """Each may be a megabyte, with a thousand hidden observables to mask in it."""
    looked = list[str]()

    def alerts() -> Iterator[Alert]:
        for number in range(200):
            looked.append(f"~{number}")
            yield make.alert(id=f"~{number}", title="Tunnel" if number % 2 else "Phishing")

    assert [alert.id for alert in islice(showing(alerts(), [], ["tunnel"], 2), 3)] == ["~1", "~3", "~5"]
    assert looked == [f"~{number}" for number in range(6)]


def test_an_alert_is_shown_once_by_its_id_or_all_words() -> None:
    red, shown = make.alert(id="~1", tlp=3), make.alert(id="~2", title="Beacon to evil.example")
    assert [one.id for one in showing([red, shown, shown], ["~1", "~2"], ["nothing"], 2)] == ["~2"]
    assert [one.id for one in showing([red, shown, shown], [], ["beacon", "evil.example"], 2)] == ["~2"]
    assert not [*showing([red, shown], [], ["beacon", "nothing"], 2)]
