"""`usergroups.*`."""

from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.state import Json
from bot.slack_emulator.web_api.calls import Args, WebApi


def usergroups_users_list(api: WebApi, args: Args) -> Json:
    users = api.team.usergroups.get(args.need("usergroup"))
    if users is None:
        raise SlackError("no_such_subteam")
    return {"users": list(users)}
