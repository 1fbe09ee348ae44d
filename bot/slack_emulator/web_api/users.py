"""`users.*`."""

from bot.slack_emulator.state import Json, User
from bot.slack_emulator.web_api.calls import Args, WebApi


def users_info(api: WebApi, args: Args) -> Json:
    return {"user": _shown_user(api, api.team.user(args.need("user")))}


def _shown_user(api: WebApi, user: User) -> Json:
    team_id = user.team_id or api.team.id
    profile = {"real_name": user.real_name, "display_name": user.name, "team": team_id}
    if user.email and api.manifest.has_scope("users:read.email"):
        profile["email"] = user.email
    shown = {
        "id": user.id,
        "team_id": team_id,
        "name": user.name,
        "deleted": user.deleted,
        "profile": profile,
        "is_bot": user.is_bot,
        "is_app_user": False,
    }
    if user.deleted:  # Slack omits the rest for deactivated users
        return shown
    shown |= {
        "real_name": user.real_name,
        "tz": "Etc/UTC",
        "tz_offset": 0,
        "is_admin": False,
        "is_owner": False,
        "is_restricted": user.is_restricted,
        "is_ultra_restricted": user.is_ultra_restricted,
    }
    if user.is_email_confirmed is not None:
        shown["is_email_confirmed"] = user.is_email_confirmed
    if team_id != api.team.id and not team_id.startswith("E"):  # people of one enterprise are no strangers
        shown["is_stranger"] = True
    return shown
