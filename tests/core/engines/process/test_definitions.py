"""Definition files and configuration: what is offered, what is skipped, and the reasons."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.engines.base import Catalogue, Skipped
from core.engines.configuration import ConfiguredResponder, configure
from core.engines.definitions import Definition, read_definition, responder_id
from core.engines.job_folder import secrets_of
from tests.core.engines.process.conftest import MakeEngine

PLAIN: dict[str, Any] = {
    "name": "Mailer",
    "version": "1.0",
    "description": "Sends a mail",
    "dataTypeList": ["thehive:case", "thehive:alert"],
    "command": "Mailer/mailer.py",
}


def put(root: Path, file: str = "Mailer/Mailer.json", *, program: bool = True, **keys: Any) -> Path:
    """Write a definition file below `root`, with its program."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: value for key, value in {**PLAIN, **keys}.items() if value is not None}))
    if program:
        (path.parent / "mailer.py").write_text("")
    return path


async def catalogue(make_engine: MakeEngine, *roots: Path, config: Any = None) -> Catalogue:
    found = await make_engine(folders=roots, config=config or {}).catalogue()
    return Catalogue(
        tuple(item for item in found.responders if not item.name.startswith("ResponderBot_")),
        tuple(item for item in found.skipped if not item.name.startswith("ResponderBot_")),
        found.unreadable,
    )


async def test_a_definition_becomes_a_responder(make_engine: MakeEngine, tmp_path: Path) -> None:
    put(tmp_path / "own")
    (responder,) = (await catalogue(make_engine, tmp_path / "own")).responders
    assert responder.name == "Mailer_1_0"
    assert responder.id == responder_id("default", "Mailer_1_0")
    assert responder.data_types == ("thehive:case", "thehive:alert")
    assert (responder.max_tlp, responder.max_pap) == (3, 3)


async def test_the_folder_of_a_single_responder_may_be_configured(make_engine: MakeEngine, tmp_path: Path) -> None:
    put(tmp_path / "own")
    assert len((await catalogue(make_engine, tmp_path / "own" / "Mailer")).responders) == 1


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"name": None}, "the key 'name' is missing."),
        ({"version": None}, "the key 'version' is missing."),
        ({"command": None}, "the key 'command' is missing."),
        ({"dataTypeList": None}, "the key 'dataTypeList' must be a list of at least one string."),
        ({"dataTypeList": "thehive:case"}, "the key 'dataTypeList' must be a list of at least one string."),
        ({"config": []}, "the key 'config' must be an object."),
        ({"name": "a/b"}, "name and version must be short and without slashes or control characters."),
        ({"command": None, "dockerImage": "x/y"}, "it has only a dockerImage and no command"),
        ({"command": "Mailer/gone.py"}, "the program 'Mailer/gone.py' is missing below"),
        ({"command": "../../../bin/sh"}, "the command '../../../bin/sh' leads out of the folder"),
        ({"command": "/bin/sh"}, "the command '/bin/sh' leads out of the folder"),
        ({"command": "Mailer/link"}, "the command 'Mailer/link' leads out of the folder"),
        ({"command": "Mailer/plain"}, "the program 'Mailer/plain' is neither a Python file nor executable."),
        (
            {"configurationItems": [{"name": "a", "type": "date"}]},
            "'a' has the unknown type 'date'",
        ),
        ({"configurationItems": [{"name": "to", "required": True}]}, "required configuration without a value: to."),
        (
            {"configurationItems": [{"name": "to", "required": True, "defaultValue": ""}]},
            "required configuration without a value: to.",
        ),
        ({"config": {"jobTimeout": 0}}, "jobTimeout must be a number of minutes above 0."),
        ({"config": {"cacerts": "/etc/shadow"}}, "cacerts must be PEM text here; a path can be set in the settings"),
        ({"configurationItems": [{"name": "cacerts", "defaultValue": "/dev/zero"}]}, "cacerts must be PEM text here"),
    ],
)
async def test_an_unusable_definition_is_skipped_with_file_and_reason(
    make_engine: MakeEngine, tmp_path: Path, keys: dict[str, Any], reason: str
) -> None:
    root = tmp_path / "own"
    file = put(root, **keys)
    put(root, "Other/Other.json", name="Other", command="Other/mailer.py")
    (root / "Mailer" / "link").symlink_to("/bin/sh")
    (root / "Mailer" / "plain").write_text("text")
    found = await catalogue(make_engine, root)
    assert [item.name for item in found.responders] == ["Other_1_0"]
    (skipped,) = found.skipped
    assert skipped.reason.startswith(f"{file}: ")
    assert reason in skipped.reason


@pytest.mark.parametrize("text", [b"{", b"[]", b"\xff\xfe", b"7", b"[" * 100_000])
async def test_a_file_that_is_not_a_json_object_does_not_affect_others(
    make_engine: MakeEngine, tmp_path: Path, text: bytes
) -> None:
    put(tmp_path / "own")
    (tmp_path / "own" / "Mailer" / "broken.json").write_bytes(text)
    found = await catalogue(make_engine, tmp_path / "own")
    assert [len(found.responders), [item.name for item in found.skipped]] == [1, ["broken"]]


async def test_a_missing_folder_is_reported(make_engine: MakeEngine, tmp_path: Path) -> None:
    found = await catalogue(make_engine, tmp_path / "gone")
    assert found.unreadable == (
        f"The folder of responders {tmp_path}/gone can't be read (No such file or directory); create it, or remove"
        " it from [[engine]] responders.",
    )


async def test_a_bundled_responder_is_wanted_once_it_is_configured(make_engine: MakeEngine) -> None:
    webhook, mail = "ResponderBot_Webhook_1_0", "ResponderBot_Mail_1_0"
    found = {one.name: one for one in (await make_engine(config={webhook: {"ulr": "x"}}).catalogue()).skipped}
    assert (found[webhook].is_wanted, found[mail].is_wanted) == (True, False)
    assert found[mail].public_reason == "not configured: smtp_host, from, to missing; an administrator can set it"
    would_be = found[mail].responder
    assert would_be is not None
    assert {"smtp_host", "max_tlp"} <= set(would_be.items)


async def test_an_invalid_list_is_not_shown_since_it_may_hold_a_secret(tmp_path: Path) -> None:
    skipped = configure(definition(tmp_path, configurationItems=[item("a", multi=True)]), {"a": "[hunter2"})
    assert isinstance(skipped, Skipped)
    assert "hunter2" not in f"{skipped.reason} {skipped.public_reason}"
    assert skipped.public_reason.startswith(
        "wrongly configured: the list of the configuration item 'a' is not valid JSON"
    )


async def test_the_first_of_a_name_is_used_and_configured_folders_win_over_bundled_ones(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    put(tmp_path / "a", name="ResponderBot_CloseAsFalsePositive", description="ours")
    put(tmp_path / "b", name="ResponderBot_CloseAsFalsePositive", description="later")
    found = await make_engine(folders=(tmp_path / "a", tmp_path / "b")).catalogue()
    name = "ResponderBot_CloseAsFalsePositive_1_0"
    assert [item.description for item in found.responders if item.name == name] == ["ours"]
    reasons = [item.reason for item in found.skipped if item.name == name]
    assert len(reasons) == 2
    assert all(f"is already defined by {tmp_path}/a/Mailer/Mailer.json." in reason for reason in reasons)


async def test_the_catalogue_follows_the_files(make_engine: MakeEngine, tmp_path: Path) -> None:
    root = tmp_path / "own"
    file = put(root, name=None)
    engine = make_engine(folders=(root,))
    before = await engine.catalogue()
    assert await engine.catalogue() is before
    file.write_text(json.dumps(PLAIN))
    assert "Mailer_1_0" in [item.name for item in (await engine.catalogue()).responders]
    (root / "Mailer" / "mailer.py").unlink()
    assert "Mailer_1_0" not in [item.name for item in (await engine.catalogue()).responders]


def definition(tmp_path: Path, **keys: Any) -> Definition:
    return read_definition(put(tmp_path / "own", **keys))


def item(name: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


@pytest.mark.parametrize(
    ("declared", "given", "config"),
    [
        (item("a"), {"a": "x"}, {"a": "x"}),
        (item("a"), {}, {"a": None}),
        (item("a"), {"a": 7}, {"a": "7"}),
        (item("login", defaultValue="user"), {}, {"login": "user"}),
        (item("login", defaultValue="user"), {"login": ""}, {"login": ""}),
        (item("a", multi=True), {}, {"a": []}),
        (item("a", multi=True), {"a": ["x", "y"]}, {"a": ["x", "y"]}),
        (item("a", multi=True), {"a": "x, y"}, {"a": ["x", "y"]}),
        (item("a", multi=True), {"a": '["x, y"]'}, {"a": ["x, y"]}),
        (item("a", "number"), {"a": "25"}, {"a": 25}),
        (item("a", "number", defaultValue="600"), {}, {"a": 600}),
        (item("a", "number", defaultValue=""), {}, {"a": None}),
        (item("a", "boolean"), {"a": "True"}, {"a": True}),
        (item("a", "boolean", defaultValue=False, required=True), {}, {"a": False}),
        (item("smtp-host"), {"SMTP_HOST": "h"}, {"smtp-host": "h"}),
    ],
)
def test_a_value_is_converted_to_the_type_of_its_item(
    tmp_path: Path, declared: dict[str, Any], given: dict[str, Any], config: dict[str, Any]
) -> None:
    configured = configure(definition(tmp_path, configurationItems=[declared]), given)
    assert isinstance(configured, ConfiguredResponder)
    assert configured.config == config


@pytest.mark.parametrize(
    ("declared", "given", "reason"),
    [
        (item("a"), {"a": ["x"]}, "'a' must be a string."),
        (item("a", "number"), {"a": "many"}, "'a' must be a number."),
        (item("a", "boolean"), {"a": "perhaps"}, "'a' must be true or false."),
        (item("a", multi=True), {"a": "[1"}, "is not valid JSON."),
        (item("a", multi=True), {"a": [{}]}, "'a' must be a string."),
    ],
)
def test_a_value_of_the_wrong_type_skips_the_responder(
    tmp_path: Path, declared: dict[str, Any], given: dict[str, Any], reason: str
) -> None:
    skipped = configure(definition(tmp_path, configurationItems=[declared]), given)
    assert isinstance(skipped, Skipped)
    assert skipped.reason.endswith(reason)


@pytest.mark.parametrize(
    ("fixed", "given", "maximum"),
    [
        ({}, {}, 3),
        ({"check_tlp": True}, {}, 2),
        ({"check_tlp": True, "max_tlp": 1}, {}, 1),
        ({"check_tlp": False}, {"check_tlp": True}, 2),
        ({"check_tlp": True, "max_tlp": 3}, {"max_tlp": 0}, 0),
        ({}, {"CHECK_TLP": "true"}, 2),
    ],
)
def test_the_highest_tlp_comes_from_the_check_and_its_maximum(
    tmp_path: Path, fixed: dict[str, Any], given: dict[str, Any], maximum: int
) -> None:
    configured = configure(definition(tmp_path, config=fixed), given)
    assert isinstance(configured, ConfiguredResponder)
    assert configured.max_tlp == maximum


def test_an_item_is_secret_by_its_name_or_by_its_description(tmp_path: Path) -> None:
    items = [
        item("password", defaultValue="password"),
        item("api", description="Key API for the service"),
        item("url", description="Where the service is"),
        item("use", "boolean", description="Use a token", defaultValue=False),
        item("monkey_business", description="Its name speaks of a key"),
    ]
    found = definition(tmp_path, configurationItems=items)
    configured = configure(found, {"api": "open sesame", "url": "http://here", "monkey_business": "none"})
    assert isinstance(configured, ConfiguredResponder)
    assert configured.secret_names == {"password", "api", "monkey_business"}
    assert secrets_of(configured, {}) == ["open sesame"]  # a default value is public, and would blot out half of a text


@pytest.mark.parametrize(
    ("given", "missing"),
    [({}, ["app_id", "app_secret"]), ({"app_id": "x"}, ["app_secret"]), ({"app_id": "x", "APP_SECRET": "mine"}, [])],
)
def test_a_credential_that_is_only_the_default_is_not_configured(
    tmp_path: Path, given: dict[str, Any], missing: list[str]
) -> None:
    items = [
        item("app_id", required=True, defaultValue="abcdef12-ab12-abc12-ab12-abcdef123456"),
        item("app_secret", required=True, defaultValue="ABCDEFGHIJKLMNOPQRSTUVWXYZ1234567890="),
    ]
    configured = configure(definition(tmp_path, configurationItems=items), given)
    assert isinstance(configured, Skipped) == bool(missing)
    if isinstance(configured, Skipped):
        assert configured.public_reason == f"not configured: {', '.join(missing)} missing; an administrator can set it"


@pytest.mark.parametrize("items", [[], [item("limit", "number", defaultValue=100)]])
async def test_a_responder_with_configuration_items_is_offered_once_the_settings_name_it(
    make_engine: MakeEngine, tmp_path: Path, items: list[dict[str, Any]]
) -> None:
    root = tmp_path / "own"
    put(root, configurationItems=items)
    found = await catalogue(make_engine, root)
    assert [responder.name for responder in found.responders] == ([] if items else ["Mailer_1_0"])
    for skipped in found.skipped:
        assert (skipped.is_wanted, skipped.public_reason.partition(";")[0]) == (False, "not configured")
        assert "`responder-bot responders settings Mailer_1_0`" in skipped.reason
    (named,) = (await catalogue(make_engine, root, config={"Mailer_1_0": {}})).responders
    assert named.name == "Mailer_1_0"


def test_only_a_python_file_needs_no_execute_permission(tmp_path: Path) -> None:
    root = tmp_path / "own"
    put(root, command="Mailer/run")
    program = root / "Mailer" / "run"
    program.write_text("#!/bin/sh\n")
    os.chmod(program, 0o700)
    assert read_definition(root / "Mailer" / "Mailer.json").is_python is False
    put(root, "Other/Other.json", command="Other/mailer.py")
    assert read_definition(root / "Other" / "Other.json").is_python is True


def _big(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1_500_000_000)  # takes no room on the disk


def _link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a link that leads out of its folder"),
    "memory": (lambda path: path.symlink_to("/proc/self/mem"), "is a link that leads out of its folder"),
    "elsewhere": (lambda path: path.symlink_to("../Other/Other.json"), "is a link that leads out of its folder"),
    "pipe": (os.mkfifo, "is not a regular file"),
    "link to a pipe": (_link_to_a_pipe, "pipe is not a regular file"),
    "circle": (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    "directory": (Path.mkdir, "is not a regular file"),
    "1.5 GB": (_big, "is longer than"),
}
"""What a folder may have in place of a file, and why that can't be read."""


@pytest.mark.parametrize("name", ["Mailer.json", "requirements.txt"])
@pytest.mark.parametrize(("spoil", "reason"), SPOILED.values(), ids=SPOILED.keys())
async def test_a_spoiled_file_takes_no_other_responder_away(
    make_engine: MakeEngine, tmp_path: Path, name: str, spoil: Callable[[Path], object], reason: str
) -> None:
    root = tmp_path / "own"
    put(root, "Other/Other.json", name="Other", command="Other/mailer.py")
    file = put(root)
    (root / "Mailer" / name).unlink(missing_ok=True)
    spoil(root / "Mailer" / name)
    found = await catalogue(make_engine, root)
    assert [item.name for item in found.responders] == ["Other_1_0"]
    (skipped,) = found.skipped
    assert skipped.reason.startswith(f"{file}: ")
    assert reason in skipped.reason


@pytest.mark.parametrize("name", ["Mailer.json", "requirements.txt"])
async def test_a_link_within_the_folder_is_followed(make_engine: MakeEngine, tmp_path: Path, name: str) -> None:
    """As a ConfigMap of Kubernetes is mounted."""
    put(tmp_path / "own")
    folder = tmp_path / "own" / "Mailer"
    (folder / "requirements.txt").write_text("# nothing")
    (folder / "..2026_11_23").mkdir()
    (folder / name).rename(folder / "..2026_11_23" / name)
    (folder / "..data").symlink_to("..2026_11_23")
    (folder / name).symlink_to(f"..data/{name}")
    assert [item.name for item in (await catalogue(make_engine, tmp_path / "own")).responders] == ["Mailer_1_0"]


async def test_a_program_that_leads_to_itself_takes_no_other_responder_away(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    root = tmp_path / "own"
    put(root, "Other/Other.json", name="Other", command="Other/mailer.py")
    put(root, program=False)
    (root / "Mailer" / "mailer.py").symlink_to("mailer.py")
    found = await catalogue(make_engine, root)
    assert [item.name for item in found.responders] == ["Other_1_0"]
    assert ["is missing below" in item.reason for item in found.skipped] == [True]


async def test_a_spoiled_file_of_a_single_responders_folder_is_skipped_alone(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    put(tmp_path / "own")
    folder = tmp_path / "own" / "Mailer"
    (folder / "A.json").write_bytes(b"[" * 100_000)
    os.mkfifo(folder / "B.json")
    found = await catalogue(make_engine, folder)
    assert [[item.name for item in found.responders], len(found.skipped)] == [["Mailer_1_0"], 2]


@pytest.mark.parametrize("key", ["name", "description", "title"])
async def test_text_that_is_no_unicode_takes_no_responder_away(
    make_engine: MakeEngine, tmp_path: Path, key: str
) -> None:
    root = tmp_path / "own"
    put(root, "Other/Other.json", name="Other", command="Other/mailer.py")
    keys: dict[str, Any] = {key: "a\ud800"}
    put(root, **keys)
    found = await catalogue(make_engine, root)
    assert len(found.responders) == 2
    assert "a?" in str(found.responders)


async def test_the_name_of_a_file_may_be_any_bytes(make_engine: MakeEngine, tmp_path: Path) -> None:
    folder = put(tmp_path / "own").parent
    (folder / os.fsdecode(b"a\xff.json")).write_text("{")
    found = await catalogue(make_engine, tmp_path / "own")
    (skipped,) = found.skipped
    assert (len(found.responders), skipped.name) == (1, "a?")
    assert skipped.reason.startswith(f"{folder}/a?.json: ")
