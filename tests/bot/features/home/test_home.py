"""The App Home in a storm: what is worst comes first, and alerts that say the same are one line."""

from pathlib import Path

from tests.bot.features.alert_groups.grouping import SAME, group_card, grouping_bot, post
from tests.bot.people import app_home, message_in, modal, text_of
from tests.bot.running import SOC


async def test_a_storm_hides_no_critical_alert_and_is_one_line(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        critical = await env.post_alert(title="Wazuh 92052 on LT-0231", severity=4, sourceRef="first", tlp=2)
        await env.post_alert(title="Lemur calls home", severity=4, sourceRef="red", tlp=3)
        grouped = [*await post(env, range(60), severity=3), *await post(env, range(60, 75), severity=2)]
        assert "and 70 more" in text_of(await group_card(anna, 75))
        await anna.open_home()
        home = await anna.sees(app_home())
        shown = text_of(home)
        assert "*Assigned to nobody* (76)" in shown
        assert "Lemur" not in shown
        lines = [block["text"]["text"] for block in home["blocks"] if "Logon failed" in text_of({"blocks": block})]
        (line,) = lines
        assert line.startswith("🟠 60 HIGH, 15 medium: Logon failed … times from … (one group)")
        assert shown.index(f"|Wazuh 92052 on LT-0231> ({critical})") < shown.index("60 HIGH")
        assert "🔴 CRITICAL <" in shown
        await anna.presses("Show alerts", home, beside="one group")
        await anna.sees(modal("of 75 alerts, worst first"))
        for name in ("Qakbot", "Emotet", "Dridex", "IcedID", "Ursnif"):
            await env.post_alert(title=f"{name} calls home", severity=4, sourceRef=name, tlp=2)
        await env.post_alert(title="Lumma calls home", severity=3, sourceRef="Lumma", tlp=2)
        await env.post_alert(title="Port scan", severity=1, sourceRef="scan", tlp=2)
        await anna.open_home()
        shown = text_of(await anna.sees(app_home("(83)")))
        assert shown.count("🔴 CRITICAL") == 6  # all of them, the oldest too, and the group below them
        assert shown.rindex("🔴 CRITICAL") < shown.index("60 HIGH, 15 medium: Logon failed")
        assert "75 alerts share 1 card since <!date^" in shown
        assert ", 75 still open; critical ones" in shown
        assert "and 2 more: 1 high, 1 low" in shown
        await anna.presses("Show all alerts", await anna.sees(app_home("(83)")))
        every = await anna.sees(modal("Open alerts", "*Assigned to nobody* (83)", "Port scan", without="more"))
        await anna.presses("Assign to me", every, beside="Port scan")
        await anna.sees(modal("You work on 🔵 LOW Port scan (~"))
        await anna.sees(app_home("(82)"))
        await env.client.close_alerts(grouped, "An exercise")
        await anna.sees(message_in(SOC, "✓ all closed"))
        await anna.open_home()
        assert ", none still open; critical ones" in text_of(await anna.sees(app_home("(7)")))
        await env.client.reopen_alerts(grouped)
        await anna.sees(message_in(SOC, SAME, without="✓ all closed"))
        await env.post_alert(title="Logon failed on LT-7", severity=3, sourceRef="lone", tlp=2)
        await anna.command(SOC, "/responder find logon")
        found = await anna.sees(modal("*76 alerts* with"))
        (line,) = [block["text"]["text"] for block in found["blocks"] if "one group" in text_of({"blocks": block})]
        assert line.startswith("🟠 60 HIGH, 15 medium: Logon failed … times from … (one group)")
        await anna.presses("Show alerts", found)
        await anna.sees(modal("of 75 alerts, worst first"))


async def test_lines_name_a_group_of_one_title_whole_and_of_an_alert_its_host_first(tmp_path: Path) -> None:
    async with grouping_bot(tmp_path) as (env, anna):
        await post(env, range(4), title="Many failed logons on BASTION-01", severity=3)
        await group_card(anna, 4)
        found = [("ip", "198.51.100.23", True), ("domain", "evil.example", True), ("hostname", "LT-0198", False)]
        named = [{"dataType": kind, "data": data, "ioc": ioc} for kind, data, ioc in found]
        await env.post_alert(title="Beacon of many failed", sourceRef="beacon", artifacts=named)
        await anna.open_home()
        await anna.command(SOC, "/responder find many failed")
        for shown in (await anna.sees(app_home()), await anna.sees(modal("*5 alerts* with"))):
            assert "🟠 4 HIGH: Many failed logons on BASTION-01 (one group)" in text_of(shown)
            assert " · hostname LT-0198 · ip 198[.]51[.]100[.]23" in text_of(shown)
