"""Core's settings: the file, the environment that overrides it, and errors in one sentence."""

from pathlib import Path

import pytest

from bot.settings import bot_settings
from core.common.database.location import PostgresqlUrl
from core.common.errors import ResponderBotError
from core.common.settings_file import read_sections, section
from core.settings import CoreSettings, SecretSource, core_settings, load

FILE = """
[core]
database = "data/core.db"
port = 9100
[[engine]]
name = "local"
type = "process"
responders = ["responders/", "/opt/more"]
[[engine]]
name = "soc"
type = "cortex"
url = "http://127.0.0.1:9001"
api_key = "from the file"
[responder."Mailer_1_0"]
config = { from = "soc@example.org", smtp_host = "127.0.0.1" }
confirm = "Sends a mail."
approval = 1
[bot]
core_url = "http://127.0.0.1:9100"
[slack]
bot_token = "xoxb-1"
[[channel]]
id = "C1"
clearance = "amber"
"""


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "responder-bot.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ResponderBotError) as caught:
        load(written(folder, text), environ or {})
    assert caught.value.code == "bad_request"
    return caught.value.message


def test_every_section_of_core_is_read_and_paths_start_at_the_file(tmp_path: Path) -> None:
    settings = load(written(tmp_path), {})
    assert settings.core.database == tmp_path / "data/core.db"
    assert settings.core.jobs == tmp_path / "jobs"
    assert settings.core.port == 9100
    assert [engine.name for engine in settings.engine] == ["local", "soc"]
    assert settings.engine[0].responders == (tmp_path / "responders", Path("/opt/more"))
    assert settings.responder["Mailer_1_0"].config == {"from": "soc@example.org", "smtp_host": "127.0.0.1"}
    assert settings.responder["Mailer_1_0"].approval == 1


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        ('[core]\nstate = "var"\n', {}),
        ('[core]\nstate = "var"\nlog_level = "info"\n', {"RESPONDER_BOT_CORE_PORT": "0"}),
        ("", {"RESPONDER_BOT_CORE_STATE": "var"}),
    ],
)
def test_all_that_is_written_is_in_the_folder_state(tmp_path: Path, text: str, environ: dict[str, str]) -> None:
    sections = read_sections(written(tmp_path, text), environ)
    core = core_settings(sections).core
    state = tmp_path / "var"
    assert (core.state, core.database) == (state, state / "responder-bot.db")
    assert (core.jobs, core.environments) == (state / "jobs", state / "environments")
    assert bot_settings(sections).core.database == core.database


def test_a_database_may_be_elsewhere_than_the_rest(tmp_path: Path) -> None:
    text = '[core]\nstate = "var"\ndatabase = "postgresql://bot@db/bot"\n'
    sections = read_sections(written(tmp_path, text), {})
    assert isinstance(core_settings(sections).core.database, PostgresqlUrl)
    assert bot_settings(sections).core.database == core_settings(sections).core.database


@pytest.mark.parametrize(
    ("section", "environ"),
    [
        ("max_tlp = 1\nmax_pap = 0", {}),
        ('config = { from = "a", max_tlp = 1, MAX_PAP = 0 }', {}),
        ('config = { from = "a" }\nmax_pap = 0', {"RESPONDER_BOT_RESPONDER_MAILER_1_0_MAX_TLP": "1"}),
        ("config = { max_tlp = 3, max_pap = 0 }", {"RESPONDER_BOT_RESPONDER_MAILER_1_0_MAX_TLP": "1"}),
    ],
)
def test_maxima_may_be_among_the_values_of_the_configuration(
    tmp_path: Path, section: str, environ: dict[str, str]
) -> None:
    found = load(written(tmp_path, f'[responder."Mailer_1_0"]\n{section}'), environ).responder["Mailer_1_0"]
    assert (found.max_tlp, found.max_pap) == (1, 0)
    assert set(found.config) <= {"from"}


@pytest.mark.parametrize("section", ["max_tlp = {}", "config = {{ max_tlp = {} }}"])
@pytest.mark.parametrize("value", ["4", "-1", '"amber"', '{ file = "tlp" }', "1.5"])
def test_a_maximum_that_is_no_level_is_refused(tmp_path: Path, section: str, value: str) -> None:
    words = refusal(tmp_path, f'[responder."Mailer_1_0"]\n{section.format(value)}')
    assert words.endswith('[responder."Mailer_1_0"] max_tlp must be a whole number from 0 to 3.')


def test_a_maximum_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    words = refusal(tmp_path, '[responder."Mailer_1_0"]\nmax_tlp = 1\nconfig = { max_tlp = 2 }')
    assert words.endswith('[responder."Mailer_1_0"] has max_tlp twice, once in config; remove that one.')


def test_without_a_file_there_are_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(None, {})
    assert settings == CoreSettings(core=settings.core)
    assert settings.core.database == tmp_path / "responder-bot.db"


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ResponderBotError, match=r"nothing\.toml can't be read \(No such file or directory\)"):
        load(tmp_path / "nothing.toml", {})


def test_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    environ = {
        "RESPONDER_BOT_CORE_PORT": "9200",
        "RESPONDER_BOT_CORE_KEEP_JOBS": "true",
        "RESPONDER_BOT_CORE_ORGANISATION": "",
        "RESPONDER_BOT_ENGINE_SOC_API_KEY": "from the environment",
        "RESPONDER_BOT_RESPONDER_MAILER_1_0_SMTP_HOST": "mail.example.org",
        "RESPONDER_BOT_RESPONDER_MAILER_1_0_PASSWORD": "hunter2",
        "RESPONDER_BOT_RESPONDER_UMBRELLA_BLOCKER_1_1_INTEGRATION_URL": "http://127.0.0.1",
    }
    settings = load(written(tmp_path), environ)
    assert (settings.core.port, settings.core.keep_jobs, settings.core.organisation) == (9200, True, "default")
    assert settings.engine[1].api_key == "from the environment"
    assert settings.responder["Mailer_1_0"].config == {
        "from": "soc@example.org",
        "smtp_host": "mail.example.org",
        "PASSWORD": "hunter2",
    }
    assert settings.responder["UMBRELLA_BLOCKER_1_1"].config == {"INTEGRATION_URL": "http://127.0.0.1"}


def test_a_secret_may_come_from_a_file_of_its_own(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("whispered\n")
    environ = {
        "RESPONDER_BOT_ENGINE_SOC_API_KEY_FILE": str(secret),
        "RESPONDER_BOT_RESPONDER_MAILER_1_0_PASSWORD_FILE": str(secret),
    }
    settings = load(written(tmp_path), environ)
    assert settings.engine[1].api_key == "whispered"
    assert settings.responder["Mailer_1_0"].config["PASSWORD"] == "whispered"


def test_a_value_of_a_responder_may_name_a_command_or_a_file(tmp_path: Path) -> None:
    text = """
    [responder."Mailer_1_0".config]
    user = { command = ["vault", "read", "-field=user", "kv/mail"] }
    password = { file = "secrets/mail" }
    token = { file = "/run/secrets/token" }
    key = { file = "replaced" }
    """
    settings = load(written(tmp_path, text), {"RESPONDER_BOT_RESPONDER_MAILER_1_0_KEY": "a text"})
    assert settings.responder["Mailer_1_0"].config == {
        "user": SecretSource(command=("vault", "read", "-field=user", "kv/mail")),
        "password": SecretSource(file=tmp_path / "secrets/mail"),
        "token": SecretSource(file=Path("/run/secrets/token")),
        "key": "a text",
    }


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('{ comand = ["x"] }', 'config.key has no key "comand"; did you mean "command"?'),
        ('{ file = "x", cache = 1 }', 'config.key has no key "cache"; there are command, file.'),
        ("{}", "config.key is to have either command, such as"),
        ('{ command = ["x"], file = "y" }', "config.key is to have either command, such as"),
        ("{ command = [] }", "config.key is to have either command, such as"),
        ('{ command = [""] }', "config.key is to have either command, such as"),
        ('{ file = "" }', "config.key is to have either command, such as"),
        ('{ command = "vault read" }', 'config.key command must be a list of strings, such as ["one", "two"].'),
        ("{ file = 1 }", "config.key file must be a path in quotes."),
    ],
)
def test_a_table_that_is_neither_command_nor_file_is_refused(tmp_path: Path, value: str, words: str) -> None:
    sentence = refusal(tmp_path, f'[responder."A_1".config]\nkey = {value}')
    assert f'[responder."A_1"] {words}' in sentence


def test_a_key_whose_name_ends_with_file_is_a_key(tmp_path: Path) -> None:
    settings = load(written(tmp_path), {"RESPONDER_BOT_ENGINE_SOC_CA_FILE": "ca.pem"})
    assert settings.engine[1].ca_file == tmp_path / "ca.pem"


def test_an_item_of_a_responder_may_be_called_file(tmp_path: Path) -> None:
    environ = {f"RESPONDER_BOT_RESPONDER_{name}_FILE": "hosts.txt" for name in ("MAILER_1_0", "LIST_2_0")}
    responders = load(written(tmp_path), environ).responder
    assert [responders[name].config["FILE"] for name in ("Mailer_1_0", "LIST_2_0")] == ["hosts.txt"] * 2


@pytest.mark.parametrize(
    "variable",
    ["RESPONDER_BOT_CORE_HOST", "RESPONDER_BOT_ENGINE_SOC_API_KEY", "RESPONDER_BOT_RESPONDER_MAILER_1_0_KEY"],
)
def test_a_value_and_its_file_together_are_refused(tmp_path: Path, variable: str) -> None:
    sentence = refusal(tmp_path, FILE, {variable: "x", f"{variable}_FILE": "/etc/hostname"})
    assert sentence == f"Both {variable} and {variable}_FILE are set; unset one of them."


def test_an_empty_file_of_a_value_is_refused(tmp_path: Path) -> None:
    """Else the value of the settings would be used, such as a token that was changed."""
    (tmp_path / "token").touch()
    sentence = refusal(tmp_path, FILE, {"RESPONDER_BOT_CORE_METRICS_TOKEN_FILE": str(tmp_path / "token")})
    assert sentence.endswith(f"_FILE names {tmp_path}/token, which is empty; put the value into it.")


def test_engines_whose_names_begin_alike_are_told_apart(tmp_path: Path) -> None:
    text = '[[engine]]\nname = "soc"\n[[engine]]\nname = "soc-2"\n'
    settings = load(written(tmp_path, text), {"RESPONDER_BOT_ENGINE_SOC_2_PROXY": "http://127.0.0.1:3128"})
    assert [engine.proxy for engine in settings.engine] == ["", "http://127.0.0.1:3128"]


def test_no_engine_of_the_settings_has_the_name_of_core_s_own(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, '[[engine]]\nname = "soc"\n[[engine]]\nname = "core"\n')
    assert sentence.endswith(": core is the name of core's own engine; take another.")


def test_the_local_engine_can_be_set_without_being_named(tmp_path: Path) -> None:
    settings = load(written(tmp_path, ""), {"RESPONDER_BOT_ENGINE_LOCAL_RESPONDERS": "a:b"})
    assert settings.engine[0].responders == (tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[core]\nprot = 1", '[core] has no key "prot"; did you mean "port"?'),
        ("[croe]\nport = 1", 'has no section [croe]; did you mean "core"?'),
        ("[[engine]]\nname = 'a'\napikey = 'x'", '[[engine]] a has no key "apikey"; did you mean "api_key"?'),
        (
            '[responder."A_1"]\nconfirmation = "x"',
            '[responder."A_1"] has no key "confirmation"; did you mean "confirm"?',
        ),
        ("[core]\nport = 'many'", "[core] port must be a whole number from 0 to 65535."),
        ("[core]\nport = 70000", "[core] port must be a whole number from 0 to 65535."),
        ("[engine]\nname = 'a'", "write [[engine]], with two brackets"),
        ("core = 1", "[core] must be a table"),
        ("[responder]\nconfirm = 'x'", '[responder] needs the name of a responder, such as [responder."Mailer_1_0"]'),
        ("[[engine]]\ntype = 'process'", "[[engine]] without a name needs a value for name: a name of letters"),
        ("[[engine]]\nname = '../up'", "[[engine]] ../up name must be a name of letters, digits, dots, _ and - that"),
        (
            "[core]\nuser_domain = '@example.org'",
            "[core] user_domain must be a domain without @, such as example.org.",
        ),
        (
            "[core]\ndatabase = 'mysql://core:secret@db/core'",
            "[core] database must be the path of a SQLite file, such as data/responder-bot.db, or the URL of a"
            " PostgreSQL, such as postgresql://USER:PASSWORD@HOST/DATABASE.",
        ),
        ("[core]\nlog_level = 'loud'", "[core] log_level must be one of debug, info, warning, error."),
        (
            "[core]\nport = 1\nport = 2",
            "responder-bot.toml:3: port is twice in [core]; keep one.",
        ),
        ("[core]\nport = 1\nport = 2\nhost = 'x'\n", "responder-bot.toml:3: port is twice in [core]; keep one."),
        ("[core]\nport = 1\n[slack]\n[core] # again\n", "responder-bot.toml:4: [core] is there twice; keep one."),
        ('[responder."A_1"]\nconfig = "a=b"', "config must be a table, such as { key = value }."),
        ("[[core]]\nport = 1", "[core] must be a table: write its keys below a line [core]."),
        ("port = 9000", "port is outside any section; move it into one, such as [core]."),
        ("[[engine]]\nname = 'a'\ntype = 'cortex'", "is of type cortex and needs url and api_key"),
        ("[[engine]]\nname = 'a'\n[[engine]]\nname = 'a'", "has two [[engine]] called a"),
        ("port = ", "is not valid TOML: Invalid value (at end of document); correct that (quote strings;"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("RESPONDER_BOT_CORE_PROT", 'is not a key of [core]; did you mean "PORT"?'),
        ("RESPONDER_BOT_CROE_PORT", 'belongs to no section; did you mean "CORE"?'),
        ("RESPONDER_BOT_ENGINE_OTHER_URL", "names no [[engine]] of"),
        ("RESPONDER_BOT_ENGINE_SOC_KEY", "is not a key of [engine]"),
        ("RESPONDER_BOT_RESPONDER_MAILER", "must end with a responder's name and an item"),
        ("RESPONDER_BOT_CHANNEL_ID", "belongs to no section"),
        ("RESPONDER_BOT_CORE_HOST_FILE", "can't be read"),
    ],
)
def test_a_variable_that_means_nothing_is_refused(tmp_path: Path, variable: str, words: str) -> None:
    assert words in refusal(tmp_path, FILE, {variable: "/does/not/exist"})


def test_no_variable_is_for_a_responder_without_a_name(tmp_path: Path) -> None:
    variable = {"RESPONDER_BOT_RESPONDER__KEY": "x"}
    assert "must end with a responder's name" in refusal(tmp_path, f'{FILE}[responder.""]', variable)


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_bytes(b"\xef\xbb\xbf[core]\r\nport = 9100\r\n")
    assert load(tmp_path / "settings.toml", {}).core.port == 9100


def test_a_file_that_is_no_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_bytes(b"[core]\nhost = '\xff'")
    with pytest.raises(ResponderBotError, match="it is not UTF-8 text; save it as UTF-8"):
        load(tmp_path / "settings.toml", {})


def test_a_wrong_value_of_a_variable_names_the_variable(tmp_path: Path) -> None:
    for variable in ("RESPONDER_BOT_CORE_PORT", "RESPONDER_BOT_ENGINE_SOC_TYPE"):
        sentence = refusal(tmp_path, FILE, {variable: "many"})
        assert sentence.startswith(f"The environment variable {variable} must be ")


def test_a_wrong_value_is_not_repeated_since_it_may_be_a_secret(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, '[[engine]]\nname = "a"\nurl = ["hunter2"]')
    assert "hunter2" not in sentence


def test_the_variables_of_others_are_read_after_the_section_s_own(tmp_path: Path) -> None:
    from core.settings import EngineSection

    sections = read_sections(written(tmp_path, '[slack]\nname = "x"'), {"SLACK_KEY": "a", "SLACK_URL": "b"})
    also = {"api_key": "SLACK_KEY", "url": "SLACK_URL"}
    read = section(EngineSection, "slack", sections, also=also)
    assert (read.api_key, read.url) == ("a", "b")


def test_a_list_of_hosts_is_refused_since_no_program_could_be_held_to_it(tmp_path: Path) -> None:
    file = written(tmp_path, '[responder."Mailer_1_0"]\nnetwork = ["mail.example.org:25"]\n')
    with pytest.raises(ResponderBotError) as raised:
        load(file, {})
    assert raised.value.message == (
        f'{file}: [responder."Mailer_1_0"] network must be one of "all" and "none"; '
        "to allow some hosts only, use a firewall."
    )
