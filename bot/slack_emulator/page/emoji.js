// Common emoji short names; an unknown name is shown as typed.

const TABLE = `
white_check_mark ✅|heavy_check_mark ✔️|ballot_box_with_check ☑️|x ❌|heavy_multiplication_x ✖️|negative_squared_cross_mark ❎
warning ⚠️|rotating_light 🚨|no_entry ⛔|no_entry_sign 🚫|octagonal_sign 🛑|stop_sign 🛑|construction 🚧|bangbang ‼️|exclamation ❗|question ❓|grey_question ❔
information_source ℹ️|bulb 💡|bell 🔔|no_bell 🔕|mega 📣|loudspeaker 📢|speech_balloon 💬|thought_balloon 💭|eyes 👀|eye 👁️|mag 🔍|mag_right 🔎
red_circle 🔴|large_orange_circle 🟠|large_yellow_circle 🟡|large_green_circle 🟢|large_blue_circle 🔵|large_purple_circle 🟣|white_circle ⚪|black_circle ⚫|large_brown_circle 🟤
large_red_square 🟥|large_orange_square 🟧|large_yellow_square 🟨|large_green_square 🟩|large_blue_square 🟦|large_purple_square 🟪|white_large_square ⬜|black_large_square ⬛
small_red_triangle 🔺|small_orange_diamond 🔸|small_blue_diamond 🔹|large_orange_diamond 🔶|large_blue_diamond 🔷
hourglass ⌛|hourglass_flowing_sand ⏳|stopwatch ⏱️|alarm_clock ⏰|clock1 🕐|clock3 🕒|calendar 📅|date 📅|spiral_calendar_pad 🗓️
arrow_right ➡️|arrow_left ⬅️|arrow_up ⬆️|arrow_down ⬇️|arrow_forward ▶️|arrow_backward ◀️|arrows_counterclockwise 🔄|repeat 🔁|leftwards_arrow_with_hook ↩️|arrow_heading_down ⤵️
double_vertical_bar ⏸️|black_square_for_stop ⏹️|black_circle_for_record ⏺️|black_right_pointing_double_triangle_with_vertical_bar ⏭️|fast_forward ⏩|rewind ⏪
lock 🔒|unlock 🔓|closed_lock_with_key 🔐|key 🔑|shield 🛡️|crossed_swords ⚔️|bug 🐛|beetle 🪲|microbe 🦠|skull 💀|skull_and_crossbones ☠️|bomb 💣|boom 💥|fire 🔥|zap ⚡|dart 🎯|detective 🕵️
robot_face 🤖|computer 💻|desktop_computer 🖥️|gear ⚙️|wrench 🔧|hammer 🔨|hammer_and_wrench 🛠️|toolbox 🧰|electric_plug 🔌|package 📦|inbox_tray 📥|outbox_tray 📤|satellite_antenna 📡|globe_with_meridians 🌐
email 📧|envelope ✉️|incoming_envelope 📨|e-mail 📧|link 🔗|paperclip 📎|pushpin 📌|round_pushpin 📍|bookmark 🔖|label 🏷️|clipboard 📋|memo 📝|pencil 📝|pencil2 ✏️|page_facing_up 📄|page_with_curl 📃|scroll 📜|file_folder 📁|open_file_folder 📂|card_index_dividers 🗂️|wastebasket 🗑️|bar_chart 📊|chart_with_upwards_trend 📈|chart_with_downwards_trend 📉
+1 👍|thumbsup 👍|-1 👎|thumbsdown 👎|ok_hand 👌|wave 👋|clap 👏|raised_hands 🙌|pray 🙏|point_right 👉|point_left 👈|point_up ☝️|point_down 👇|muscle 💪|raised_hand ✋|hand ✋|writing_hand ✍️
smile 😄|grinning 😀|slightly_smiling_face 🙂|smiley 😃|wink 😉|joy 😂|thinking_face 🤔|sweat_smile 😅|neutral_face 😐|confused 😕|cry 😢|disappointed 😞|scream 😱|sunglasses 😎|relieved 😌|upside_down_face 🙃|ghost 👻|zany_face 🤪
heart ❤️|green_heart 💚|blue_heart 💙|yellow_heart 💛|broken_heart 💔|star ⭐|sparkles ✨|tada 🎉|trophy 🏆|rocket 🚀|100 💯|rainbow 🌈|sunny ☀️|cloud ☁️|snowflake ❄️|coffee ☕|beers 🍻|cake 🍰|phone ☎️|telephone_receiver 📞|lightning ⚡|seedling 🌱|ticket 🎫|newspaper 📰|id 🆔|new 🆕|sos 🆘|heavy_plus_sign ➕|heavy_minus_sign ➖|radioactive_sign ☢️|biohazard_sign ☣️
`;

const EMOJI = new Map(
  TABLE.split(/[|\n]/).filter(Boolean).map((entry) => {
    const gap = entry.lastIndexOf(" ");
    return [entry.slice(0, gap), entry.slice(gap + 1)];
  }),
);

/** The character for a short name (skin tones are ignored), or null. */
export function emoji(name) {
  return EMOJI.get(name.replace(/::skin-tone-\d$/, "")) ?? null;
}

