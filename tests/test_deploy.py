"""What an operator deploys: the unit for systemd, Compose, Kubernetes; and the check of licences."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.settings import bot_settings
from core.common.settings_file import read_sections
from core.engines.configuration import DEFAULT_TIMEOUT_MINUTES
from core.settings import core_settings
from tests.documents import ROOT

DEPLOY = ROOT / ".github" / "deploy"
UNIT = DEPLOY / "responder-bot.service"
COMPOSE = DEPLOY / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes"
OURS = ("responder-bot", "replica-1", "replica-2")


def accepts(program: str, *arguments: str | Path) -> None:
    """A program of the group `image` ends with 0."""
    path = shutil.which(program, path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip(f"there is no {program} here; `uv run --group image` brings it")
    ran = subprocess.run([path, *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def kubernetes() -> Mapping[str, Any]:
    """The resources by their kind."""
    resources = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    assert sorted([*resources, "kustomization.yaml"]) == sorted(file.name for file in KUBERNETES.iterdir())
    parsed = [yaml.safe_load((KUBERNETES / name).read_text()) for name in resources]
    return {resource["kind"]: resource for resource in parsed}


def environments(token: Path) -> Iterator[Mapping[str, str]]:
    """The environment that each manifest gives to a container, with values in place of secrets."""
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name in OURS:
        yield {key: re.sub(r"\$\{\w+:-\}", "x", value) for key, value in services[name]["environment"].items()}
    (container,) = kubernetes()["Deployment"]["spec"]["template"]["spec"]["containers"]
    secrets = {True: str(token), False: "postgresql://bot:secret@database.example/bot"}
    yield {variable["name"]: secrets[variable["name"].endswith("_FILE")] for variable in container["env"]}


@pytest.mark.image
def test_compose_and_kubernetes_accept_their_manifests() -> None:
    accepts("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)
    resources = [file for file in KUBERNETES.iterdir() if file.name != "kustomization.yaml"]
    accepts("kubernetes-validate", "--strict", "--version", "1.32", *resources)


def test_kustomize_renders_each_resource() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl here")
    ran = subprocess.run(["kubectl", "kustomize", KUBERNETES], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert {resource["kind"]: resource for resource in yaml.safe_load_all(ran.stdout)} == kubernetes()


def test_the_manifests_set_what_the_settings_know(tmp_path: Path) -> None:
    (tmp_path / "responder-bot.toml").touch()
    token = tmp_path / "token"
    token.write_text("a-token")
    for environment in environments(token):
        sections = read_sections(tmp_path / "responder-bot.toml", environment)
        assert bot_settings(sections).slack.bot_token
        assert str(core_settings(sections).core.database)


def test_all_that_belongs_together_has_one_label_and_one_name() -> None:
    label = {"app.kubernetes.io/name": "responder-bot"}
    resources = kubernetes()
    deployment = resources["Deployment"]["spec"]
    assert deployment["template"]["metadata"]["labels"] == label
    budget, policy, service = (resources[kind]["spec"] for kind in ("PodDisruptionBudget", "NetworkPolicy", "Service"))
    selectors = (deployment["selector"], budget["selector"], policy["podSelector"])
    assert [selector["matchLabels"] for selector in selectors] == [label] * 3
    assert service["selector"] == label


def test_each_manifest_lets_the_longest_run_end() -> None:
    pod = kubernetes()["Deployment"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > DEFAULT_TIMEOUT_MINUTES * 60
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name in OURS:
        assert int(services[name]["stop_grace_period"].removesuffix("m")) > DEFAULT_TIMEOUT_MINUTES


def test_no_variable_of_kubernetes_is_read_as_a_setting() -> None:
    """A Service gives each pod variables of its name, such as RESPONDER_BOT_SERVICE_HOST, which the settings refuse."""
    assert kubernetes()["Deployment"]["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/local/bin/responder-bot", "/bin/true"))  # which has to be there
    checked = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_unit_s_settings_keep_all_that_core_writes_where_it_may(tmp_path: Path) -> None:
    unit = UNIT.read_text()
    settings = re.search(r"^#   \[core\]\n(#   .*\n)+", unit, re.M)
    assert settings is not None
    file = tmp_path / "responder-bot.toml"
    file.write_text(re.sub("^#   ", "", settings[0], flags=re.M))
    sections = read_sections(file, {})
    core = core_settings(sections).core
    (state,) = re.findall(r"^WorkingDirectory=(.+)$", unit, re.M)
    written = (core.database, core.jobs, core.environments, bot_settings(sections).bot.database)
    assert [path for path in written if not isinstance(path, Path) or path.parent != Path(state)] == []


def test_a_licence_that_we_may_not_use_and_none_are_refused(tmp_path: Path) -> None:
    def check() -> tuple[int, list[str]]:
        command = [sys.executable, str(ROOT / ".ci" / "licences")]
        ran = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
        return ran.returncode, [line for line in ran.stdout.splitlines() if line.startswith("FAIL")]

    assert check() == (0, [])
    for name, line in {"shared": "License-Expression: AGPL-3.0-only\n", "unnamed": ""}.items():
        (tmp_path / f"{name}-1.dist-info").mkdir()
        (tmp_path / f"{name}-1.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1\n{line}")
    assert check() == (1, ["FAIL  shared: AGPL-3.0-only", "FAIL  unnamed: it names no licence"])
