"""`auth.test`, `bots.info` and `apps.connections.open`."""

from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.state import Json
from bot.slack_emulator.web_api.calls import Args, WebApi


def auth_test(api: WebApi, args: Args) -> Json:
    team = api.team
    return {
        "url": f"{api.url}/",
        "team": team.name,
        "user": team.users[team.bot_user_id].name,
        "team_id": team.id,
        "user_id": team.bot_user_id,
        "bot_id": team.bot_id,
        "is_enterprise_install": False,
    }


def bots_info(api: WebApi, args: Args) -> Json:
    team = api.team
    if args.get("bot") not in (None, "", team.bot_id):
        raise SlackError("bot_not_found")
    user = team.users[team.bot_user_id]
    bot = {"id": team.bot_id, "deleted": False, "name": user.name, "app_id": team.app_id, "user_id": user.id}
    return {"bot": bot}


def apps_connections_open(api: WebApi, args: Args) -> Json:
    address = api.url.replace("http://", "ws://")
    return {"url": f"{address}/link/?ticket={api.socket.issue_ticket()}&app_id={api.team.app_id}"}
