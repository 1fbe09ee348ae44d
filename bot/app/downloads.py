"""Download files that people upload to Slack."""

from urllib.parse import urlsplit

import aiohttp

from bot.settings import SlackSection
from core.common.errors import ResponderBotError

MAX_BYTES = 1_048_576
SLACK_HOSTS = ("files.slack.com", "slack-files.com")


async def download(url: str, section: SlackSection, session: aiohttp.ClientSession) -> bytes:
    """Download an uploaded file by its `url_private`. The token goes to Slack's own hosts only.

    Raises ResponderBotError: "bad_request" for other hosts, "too_large" above 1 MiB, "unavailable".
    """
    host = urlsplit(url).hostname
    if host != urlsplit(section.api_url).hostname and host not in SLACK_HOSTS:
        raise ResponderBotError("bad_request", "That file is not kept by Slack; paste its text instead.")
    headers = {"Authorization": f"Bearer {section.bot_token}"}
    try:
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            if response.status != 200:
                raise ResponderBotError("unavailable", f"Slack did not give the file ({response.status}).")
            return await _read(response)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ResponderBotError("unavailable", "Slack did not give the file; try again.") from error


async def _read(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        content += chunk
        if len(content) > MAX_BYTES:
            raise ResponderBotError("too_large", "That file is larger than 1 MiB.")
    return bytes(content)
