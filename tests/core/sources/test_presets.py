"""Each preset makes of a recorded body the alerts beside it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from core.common.clock import now_ms
from core.settings import SourceSection
from core.sources import preset
from core.sources.mapping import BodyMap
from core.sources.paths import parse
from tests.core.sources.running import running_source

PAGE = Path(__file__).parents[3] / "core/docs/sources.md"


BODIES = sorted(file.name.split(".body.")[0] for file in preset.FOLDER.glob("*.body.*"))
"""The names of bodies: a preset, and after a dot what else it sends."""


def body_of(name: str) -> bytes:
    (file,) = preset.FOLDER.glob(f"{name}.body.*")
    return file.read_bytes()


def alerts_of(name: str) -> list[dict[str, Any]]:
    alerts: list[dict[str, Any]] = json.loads((preset.FOLDER / f"{name}.alerts.json").read_text())
    return alerts


@pytest.mark.parametrize("name", BODIES)
def test_a_recorded_body_becomes_the_alerts_beside_it(name: str) -> None:
    section = preset.load(name.partition(".")[0])
    reading = BodyMap(section, type=name, source=name, tlp=2, withheld_tags=()).read(body_of(name))
    assert reading.unreadable == []
    assert [
        {
            "title": alert.title,
            "description": alert.description,
            "sourceRef": alert.source_ref,
            "severity": alert.severity,
            "date": alert.date,
            "tags": alert.tags,
            "link": alert.external_link,
            "observables": [[item.data_type, item.data[0], item.message or ""] for item in alert.artifacts],
            **({"customFields": alert.custom_fields} if alert.custom_fields else {}),
            **({"resolved": True} if incoming.is_over(now_ms()) else {}),
        }
        for incoming in reading.incoming
        for alert in [incoming.request]
    ] == alerts_of(name)
    assert [note for incoming in reading.incoming for note in incoming.notes] == []


@pytest.mark.parametrize("name", BODIES)
def test_the_second_line_of_each_card_is_a_sentence_and_no_list_of_fields(name: str) -> None:
    paths = preset.load(name.partition(".")[0]).map["description"]
    fields = [parse(path).label for path in paths if "{" not in path]
    for alert in alerts_of(name):
        sentence = alert["description"].partition("\n\n")[0]
        named = [field for field in fields if re.search(rf"(?:^|, |\n){re.escape(field)}:? ", sentence)]
        assert (named, sentence.startswith(("alertname", "{"))) == ([], False), sentence


@pytest.mark.parametrize("name", BODIES)
def test_no_title_has_a_word_of_the_products_interface(name: str) -> None:
    assert [title for alert in alerts_of(name) if re.search(r"\b[a-z]+[A-Z]", title := alert["title"])] == []


@pytest.mark.parametrize(("name", "body"), [("defender", b'{"value": []}'), ("elastic", b'{"alerts": []}')])
def test_a_body_without_any_alert_is_none(name: str, body: bytes) -> None:
    reading = BodyMap(preset.load(name), type=name, source=name, tlp=2, withheld_tags=()).read(body)
    assert (reading.incoming, reading.unreadable) == ([], [])


async def test_all_of_them_are_stored_and_sent_again_are_counted(tmp_path: Path) -> None:
    others = {name: {"preset": name} for name in preset.names()}
    async with running_source(tmp_path, others=others) as source:
        first = {name: await source.counts(body_of(name), to=name.partition(".")[0]) for name in BODIES}
        again = {name: await source.counts(body_of(name), to=name.partition(".")[0]) for name in BODIES}
        email = (await source.alerts(source="email"))[0]
        prometheus = await source.core.http.post(
            "/api/ingest/prometheus/api/v2/alerts",
            content=body_of("prometheus"),
            auth=("prometheus", source.keys["prometheus"]),
        )
    firing = {name: [alert for alert in alerts_of(name) if "resolved" not in alert] for name in BODIES}
    late = {"prometheus": 1}  # that are over by the end that they name, and so are stored and closed
    assert {name: counts.get("created") for name, counts in first.items()} == {
        name: len(firing[name]) + late.get(name, 0) for name in BODIES
    }
    assert {name: counts.get("repeated") for name, counts in again.items()} == {
        name: len(firing[name]) for name in BODIES
    }
    assert [item["attachment"]["name"] for item in email["artifacts"] if item["dataType"] == "file"] == ["message.eml"]
    assert prometheus.json()["repeated"] == 1


def test_a_section_changes_what_it_names_of_its_preset() -> None:
    section = SourceSection(preset="suricata", map={"title": ("alert.category",)}, when={})
    merged = preset.merged(section)
    assert (merged.map["title"], merged.map["date"]) == (("alert.category",), ("timestamp",))
    assert (merged.when, len(merged.observables)) == ({}, 4)


@pytest.mark.parametrize("name", preset.names())
def test_the_page_leads_to_each_with_its_lines_and_its_documentation(name: str) -> None:
    found = preset.load(name)
    assert f"| [`{name}`](../sources/presets/{name}.toml) | {found.product} |" in PAGE.read_text()
    assert found.setup.strip()
    assert found.documentation
