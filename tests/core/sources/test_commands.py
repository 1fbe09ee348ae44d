"""`responder-bot source`: add, list and test."""

import socket
from pathlib import Path

import pytest

from bot.cli import main
from core.sources import preset
from core.sources.mapping import unused
from core.sources.paths import parse

BODY = preset.FOLDER / "suricata.body.json"


def settings_in(folder: Path) -> str:
    file = folder / "responder-bot.toml"
    file.write_text('[core]\nhost = "0.0.0.0"\nuser_domain = "soc.example"\n[source."edge"]\npreset = "suricata"\n')
    file.chmod(0o600)
    return str(file)


@pytest.mark.sqlite
def test_a_source_is_added_listed_and_a_problem_without_its_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings_in(tmp_path)
    assert main(["user", "add", "anna", "--profile", "analyst", "--config", config]) == 0
    capsys.readouterr()
    assert main(["source", "list", "--config", config]) == 0
    before = capsys.readouterr()
    assert main(["source", "add", "edge", "--preset", "suricata", "--config", config]) == 0
    added = capsys.readouterr().out
    assert main(["source", "list", "--config", config]) == 0
    after = capsys.readouterr()
    assert [main(["source", "add", *more, "--config", config]) for more in (["edge", "--preset", "suricata"],)] == [2]
    assert main(["source", "add", "Edge 1", "--preset", "suricata", "--config", config]) == 2
    assert main(["source", "add", "other", "--preset", "surikata", "--config", config]) == 2
    errors = capsys.readouterr().err
    assert before.out.splitlines()[1].split() == ["edge", "suricata", "never", *"00000"]
    assert "edge has no user" in before.err
    assert '[source."edge"]\npreset = "suricata"' in added
    assert f'uri = "http://{socket.gethostname()}:9000/api/ingest/edge"\n' in added
    assert "{" not in added.replace("{{{", "")
    assert after.err == ""
    assert "already" in errors
    assert "can't be the name of a source" in errors
    assert 'did you mean "suricata"?' in errors


def test_a_message_is_tested_without_being_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = settings_in(tmp_path)
    assert main(["source", "test", "edge", str(BODY), "--config", config]) == 0
    shown = capsys.readouterr().out
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    assert main(["source", "test", "wazuh", str(wrong), "--config", config]) == 1
    unreadable = capsys.readouterr().out
    assert main(["source", "test", "edge", str(tmp_path / "missing"), "--config", config]) == 2
    assert not (tmp_path / "responder-bot.db").exists()
    assert '"sourceRef": "1|2024897|10.20.4.17|198.51.100.23"' in shown
    assert "Its card:\n  🟠 HIGH  ET MALWARE Win32/Example CnC Checkin\n" in shown
    assert "Skipped: 1" in shown
    assert "Not used: alert.metadata.attack_target, " in shown
    assert unreadable.startswith("Unreadable: It has no title at rule.description")


def test_what_stands_behind_a_path_that_had_a_value_is_not_used() -> None:
    alert = {"annotations": {"summary": "Down"}, "labels": {"alertname": "Up", "team": "web"}, "empty": ""}
    paths = [parse("annotations.summary || labels.alertname"), parse("empty || labels.team")]
    assert unused(alert, paths) == ["empty", "labels.alertname"]


def test_a_source_without_its_section_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(tmp_path / "responder-bot.toml")
    Path(config).touch()
    (tmp_path / "body.json").write_text("{}")
    assert main(["user", "add", "edge", "--profile", "source", "--config", config]) == 0
    capsys.readouterr()
    assert main(["source", "list", "--config", config]) == 0
    assert capsys.readouterr().err == (
        "The settings have no [source] yet; paste what `responder-bot source add` prints.\n"
    )
    assert main(["source", "test", "edge", str(tmp_path / "body.json"), "--config", config]) == 2
    told = capsys.readouterr().err
    assert told.startswith('There is neither a [source."edge"] in the settings nor a preset edge: paste what')
