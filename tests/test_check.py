"""`responder-bot check`: every problem in one sentence with its line, and nothing is started or made."""

import json
import subprocess
import sys
from pathlib import Path

from bot.settings import BotSettings
from core.common.settings_file import SECTIONS
from core.settings import CoreSettings
from tests import programs
from tests.documents import ROOT


def check(folder: Path, settings: str = "", *args: str) -> subprocess.CompletedProcess[str]:
    """Run it; nothing but the settings may be there afterwards."""
    file = folder / "responder-bot.toml"
    if settings:
        file.write_text(settings)
        file.chmod(0o600)
    before = sorted(folder.rglob("*"))
    ran = programs.run("bot.cli", "check", *args, cwd=folder, env={"PATH": "/usr/bin:/bin"})
    assert sorted(folder.rglob("*")) == before
    return ran


def problems(folder: Path, settings: str) -> list[str]:
    ran = check(folder, settings)
    assert ran.returncode == 1
    return ran.stdout.splitlines()


def test_nothing_is_wrong(tmp_path: Path) -> None:
    for settings in ("", "[core]\nport = 9100\n"):
        ran = check(tmp_path, settings)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


TOKENS = 'bot_token = "xoxb-1"\nsigning_secret = "s"\n'


def test_what_serve_refuses_is_a_problem(tmp_path: Path) -> None:
    """Both say the same, by the same code."""
    for settings, sentence in (
        ("[slack]\n", "There is no Slack bot token: set [slack] bot_token"),
        ('[[channel]]\nid = "C1"\nclearance = "amber"\n', "There is no Slack bot token: set [slack] bot_token"),
        ('[slack]\nbot_token = "xoxb-1"\n', "Set [slack] app_token"),
        (f"[core]\nport = 9100\n[slack]\nport = 9100\n{TOKENS}", "[core] port and [slack] port are both 9100"),
        (f"[bot]\nhealth_port = 3000\n[slack]\n{TOKENS}", "[bot] health_port"),
    ):
        assert any(sentence in problem for problem in problems(tmp_path, settings)), settings
        refused = programs.run("bot.cli", "serve", cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
        assert (refused.returncode, refused.stdout) == (2, "")
        assert sentence in refused.stderr
        assert list(tmp_path.iterdir()) == [tmp_path / "responder-bot.toml"]
    assert check(tmp_path, f"[core]\nport = 0\n[slack]\nport = 0\n{TOKENS}").returncode == 0


def test_a_database_on_postgresql_needs_its_extra(tmp_path: Path) -> None:
    program = "import sys; sys.modules['psycopg'] = None; from bot.cli import main; sys.exit(main(['check']))"
    environment = {"PYTHONPATH": str(ROOT), "RESPONDER_BOT_CORE_DATABASE": "postgresql://bot:s3cret@db/bot"}
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    sentence = (
        "PostgreSQL needs psycopg, which is not installed (psycopg); install responder-bot with its extra `postgresql`,"
        " or name a SQLite file with [core] database.\n"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, sentence, "")


def test_each_section_says_what_is_wrong_in_which_line(tmp_path: Path) -> None:
    settings = """[core]
# prot = 1
prot = 5
[[engine]]
name = "local"
[[engine]]
name = "soc"
type = "cortex"
[[channel]]
id = "C1"
clearance = "amber"
[[channel]]
id = "C2"
clearance = "puce"
[protect]
artifacts = 5
"""
    assert problems(tmp_path, settings) == [
        "responder-bot.toml:14: [[channel]] number 2 clearance must be one of clear, green, amber, red.",
        'responder-bot.toml:3: [core] has no key "prot"; did you mean "port"?',
        "responder-bot.toml:8: [[engine]] soc is of type cortex and needs url and api_key.",
        "responder-bot.toml:16: [protect] artifacts must be a list of strings,"
        ' such as ["10.0.0.0/8", "*.corp.example", "file:crown-jewels.txt"].',
    ]


def test_responders_sources_and_files_are_looked_at(tmp_path: Path) -> None:
    settings = """[[engine]]
name = "local"
responders = ["missing/"]
[[engine]]
name = "soc"
type = "cortex"
url = "http://127.0.0.1:9"
api_key = "secret"
ca_file = "ca.pem"
[responder."ResponderBot_Webhook_1_0"]
config = { url = "http://127.0.0.1:9", nope = 1 }
[source."edge"]
preset = "suricat"
[protect]
artifacts = "file:none.txt, dc01"
"""
    found = problems(tmp_path, settings)
    assert [sentence.partition(": ")[0] for sentence in found] == [
        "responder-bot.toml:9",
        "responder-bot.toml:13",
        "responder-bot.toml:3",
        "responder-bot.toml:14",
    ]
    assert "secret" not in "".join(found)
    only_here = settings.replace('type = "cortex"', 'type = "process"').replace("ca_file", "#")
    assert any(
        "responder-bot.toml:11: The settings' [responder.\"Res" in line for line in problems(tmp_path, only_here)
    )


def test_a_secret_in_a_file_that_is_not_there_is_told_before_a_run_wants_it(tmp_path: Path) -> None:
    settings = """[responder."ResponderBot_Webhook_1_0"]
[responder."ResponderBot_Webhook_1_0".config]
url = "http://127.0.0.1:9"
token = { file = "secrets/webhook" }
"""
    (found,) = problems(tmp_path, settings)
    place = '[responder."ResponderBot_Webhook_1_0".config] token'
    assert found.endswith(f"{place}: {tmp_path}/secrets/webhook can't be read; correct path or rights.")


def test_what_is_no_toml_and_what_is_not_there(tmp_path: Path) -> None:
    assert "(at line 2, column 8)" in problems(tmp_path, "[core]\nport = \nhost = 1")[0]
    missing = check(tmp_path, "", "--config", "other.toml")
    assert (missing.returncode, missing.stdout.count("\n")) == (1, 1)


def test_the_schema_knows_every_section_and_key(tmp_path: Path) -> None:
    schema = json.loads(check(tmp_path, "", "--schema").stdout)
    assert schema["properties"].keys() == set(SECTIONS)
    sections = {**CoreSettings.model_fields, **BotSettings.model_fields}
    assert schema["additionalProperties"] is False
    assert sections.keys() == set(SECTIONS)
