"""`api.test`, `auth.test` and `apps.connections.open`."""

from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.state import Json
from bot.slack_emulator.web_api.calls import Args, WebApi


def api_test(api: WebApi, args: Args) -> Json:
    if args.get("error"):
        raise SlackError(str(args.get("error")), args=args.values)
    return {"args": args.values}


def auth_test(api: WebApi, args: Args) -> Json:
    team = api.team
    return {
        "url": f"{api.url}/",
        "team": team.name,
        "user": team.users[team.bot_user_id].name,
        "team_id": team.id,
        "user_id": team.bot_user_id,
        "bot_id": team.bot_id,
        "app_id": team.app_id,
        "is_enterprise_install": False,
    }


def apps_connections_open(api: WebApi, args: Args) -> Json:
    address = api.url.replace("http://", "ws://")
    return {"url": f"{address}/link/?ticket={api.socket.issue_ticket()}&app_id={api.team.app_id}"}
