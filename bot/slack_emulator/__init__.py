"""An emulator of Slack: the Web API, Socket Mode and signed HTTP for an app, and a web page for people.

An app connects as it does to Slack; only the address differs:

    emulator = SlackEmulator()
    emulator.add_user("U0ANNA", name="anna", real_name="Anna Analyst")
    emulator.add_channel("C0SOC", name="soc-alerts")
    await emulator.start()

    client = AsyncWebClient(token=emulator.bot_token, base_url=emulator.api_url)
    app = AsyncApp(client=client)
    await AsyncSocketModeHandler(app, emulator.app_token).connect_async()

    async with EmulatedUser(emulator.url, emulator.page_token, "U0ANNA") as anna:
        await anna.command("C0SOC", "/hello")
        await anna.until(lambda view: view.ephemerals("C0SOC"))

Open `emulator.page_url` in a browser. With `emulator.requests_url` set, payloads are posted there as signed HTTP
requests instead. `emulator.faults` injects faults. `bot.slack_emulator.limits.problems` validates payloads.
"""

from bot.slack_emulator.faults import Faults
from bot.slack_emulator.person import EmulatedUser, EmulatorView, Refused
from bot.slack_emulator.pointers import Pointer
from bot.slack_emulator.server import SlackEmulator

__all__ = [
    "EmulatedUser",
    "EmulatorView",
    "Faults",
    "Pointer",
    "Refused",
    "SlackEmulator",
]
