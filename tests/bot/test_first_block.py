"""The first containment by the README: setup, an alert by its curl, Block, what a firewall reads, Undo."""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.demo.transcript import text_of
from bot.slack_emulator import EmulatorView, SlackEmulator
from tests import programs
from tests.bot.people import Person, card_of, modal
from tests.bot.serving import output_after
from tests.documents import ROOT, blocks, prose

ANNA, SOC, BLOCK = "U0ANNA", "C0SOC", "ResponderBot_Block_1_0"


def card(view: EmulatorView, alert: str, words: str) -> dict[str, Any]:
    return next((m for m in view.messages(SOC) if alert in m["text"] and words in text_of(m)), {})


@pytest.mark.slow
async def test_a_newcomer_blocks_an_address_and_takes_it_off_again(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    emulator = SlackEmulator(yaml.safe_load((ROOT / "manifest.yml").read_text()))
    emulator.add_user(ANNA, name="anna", real_name="Anna")
    emulator.add_channel(SOC, name="soc")
    async with emulator:
        environment = {
            **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
            "SLACK_API_URL": emulator.api_url,
            "SLACK_BOT_TOKEN": emulator.bot_token,
            "SLACK_APP_TOKEN": emulator.app_token,
            "RESPONDER_BOT_CORE_PORT": "0",
        }

        async def setup(*more: str) -> tuple[int | None, str, str]:
            arguments = ("setup", "--channel", "soc", "--person", ANNA, *more)
            process = await programs.start(
                "bot.cli", *arguments, cwd=tmp_path, env=environment, stdout=programs.PIPE, stderr=programs.PIPE
            )
            out, err = await process.communicate()
            return process.returncode, out.decode(), err.decode()

        code, _, err = await setup()
        assert (code, "run this again with --code" in err) == (2, True)
        async with Person(emulator.url, emulator.page_token, ANNA) as anna:
            texts = [m["text"] for channel in anna.live_view.channels for m in anna.live_view.messages(channel)]
            (typed,) = [found[1] for text in texts if (found := re.match(r"(\d{6}) is your code", text))]
            code, out, err = await setup("--code", typed)
            assert (code, err) == (0, ""), out + err
            _, reader = re.findall(r"it is not shown again:\n   (\S+)", out)
            serve = await programs.start("bot.cli", "serve", cwd=tmp_path, env=environment, stdout=programs.PIPE)
            try:
                core = await output_after(serve, "core: ")
                await output_after(serve, "bot: ")

                async def shell(text: str) -> str:
                    process = await asyncio.create_subprocess_shell(text, stdout=asyncio.subprocess.PIPE, cwd=tmp_path)
                    found, _ = await process.communicate()
                    assert process.returncode == 0, text
                    return found.decode()

                page = ROOT / "README.md"
                (read_list,) = re.findall(r"`curl (-u firewall) (\$CORE[^`]+)`", prose(page))

                async def blocked() -> str:
                    return await shell(f"CORE={core}; curl -sSf {read_list[0]}:{reader} {read_list[1]}")

                (send,) = (block for block in blocks(page, "sh") if "/api/alert" in block)
                uv = f'uv() {{ shift 2; PYTHONPATH={ROOT} {sys.executable} -m bot.cli "$@"; }}; set -e\n'
                alert = json.loads(await shell(uv + send.replace("http://127.0.0.1:9000", core)))["id"]
                assert await blocked() == ""
                await anna.command(SOC, f"/responder run {BLOCK} {alert} 203.0.113.7")
                await anna.submits(await anna.sees(modal()))
                await anna.sees(card_of(alert, "in force"))
                assert await blocked() == "203.0.113.7\n"
                read = await anna.sees(card_of(alert, "read by firewall"))
                await anna.confirms("Undo now", read)
                await anna.sees(card_of(alert, "was taken off the block list"))
                assert await blocked() == ""
            finally:
                serve.send_signal(signal.SIGTERM)
                await serve.wait()
