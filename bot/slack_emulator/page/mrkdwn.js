// Renders Slack's mrkdwn, plain text and rich text as DOM nodes.

import { h, link, webAddress } from "./dom.js";
import { emoji } from "./emoji.js";

const ENTITIES = { "&lt;": "<", "&gt;": ">", "&amp;": "&" };
const EMOJI_NAME = /:([a-z0-9_+'-]+(?:::skin-tone-[2-6])?):/;

/** Slack escapes only these three characters. */
export function unescape(text) {
  return text.replace(/&(?:lt|gt|amp);/g, (entity) => ENTITIES[entity]);
}

export function escape(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** Nodes for a text object, or for a string of mrkdwn. */
export function textObject(text, names) {
  if (text === null || text === undefined) return [];
  if (typeof text === "string") return mrkdwn(text, names);
  if (text.type === "mrkdwn") return mrkdwn(String(text.text ?? ""), names);
  return plain(String(text.text ?? ""), text.emoji !== false);
}

export function plain(text, withEmoji = true) {
  return withEmoji ? emojiNodes(unescape(text)) : [unescape(text)];
}

/** The plain text of a text object, for labels. */
export function words(text) {
  const raw = typeof text === "string" ? text : String(text?.text ?? "");
  return unescape(raw).replace(new RegExp(EMOJI_NAME, "g"), (typed, name) => emoji(name) ?? typed);
}

/** mrkdwn as block-level nodes: code blocks, quotes, and lines of inline text. */
export function mrkdwn(source, names) {
  const nodes = [];
  const parts = source.split("```");
  const open = parts.length % 2 === 0 ? parts.length - 2 : -1; // an unclosed code block stays text
  for (let i = 0; i < parts.length; i += 1) {
    if (i === open) {
      nodes.push(...quoted(`${parts[i]}\`\`\`${parts[i + 1]}`, names));
      break;
    }
    if (i % 2) nodes.push(h("pre", { class: "pre" }, ...codeText(parts[i].replace(/^\n|\n$/g, ""))));
    else nodes.push(...quoted(i ? parts[i].replace(/^\n/, "") : parts[i], names));
  }
  return nodes;
}

function quoted(text, names) {
  const nodes = [];
  let run = [];
  let quote = null;
  const flush = () => {
    if (!run.length) return;
    const inner = inline(run.join("\n"), names);
    nodes.push(...(quote ? [h("blockquote", null, ...inner)] : inner));
    run = [];
  };
  for (const line of text.split("\n")) {
    const marker = /^(?:&gt;|>) ?/.exec(line);
    if (Boolean(marker) !== quote) {
      flush();
      quote = Boolean(marker);
    }
    run.push(marker ? line.slice(marker[0].length) : line);
  }
  flush();
  return nodes;
}

// One alternative per inline form; a style mark must not follow a word character.
const INLINE = new RegExp(
  [
    "(?<token><[^<>\\n]+>)",
    "(?<code>`[^`\\n]+`)",
    "(?<bold>(?<![\\w*])\\*(?=[^\\s*])[^*\\n]*?(?<!\\s)\\*(?![\\w*]))",
    "(?<italic>(?<![\\w_])_(?=[^\\s_])[^\\n]*?[^\\s]_(?![\\w])|(?<![\\w_])_[^\\s_]_(?![\\w]))",
    "(?<strike>(?<![\\w~])~(?=[^\\s~])[^~\\n]*?(?<!\\s)~(?![\\w~]))",
    "(?<emoji>:[a-z0-9_+'-]+(?:::skin-tone-[2-6])?:)",
    "(?<bare>https?:\\/\\/[^\\s<>|`]+[^\\s<>|`.,;:!?)\\]'\"*_~])",
  ].join("|"),
  "g",
);

export function inline(text, names) {
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > at) nodes.push(unescape(text.slice(at, found.index)));
    nodes.push(inlineNode(found.groups, found[0], names));
    at = found.index + found[0].length;
  }
  if (at < text.length) nodes.push(unescape(text.slice(at)));
  return nodes;
}

function inlineNode(groups, typed, names) {
  const inner = typed.slice(1, -1);
  if (groups.token) return token(inner, typed, names);
  if (groups.code) return h("code", null, ...codeText(inner));
  if (groups.bold) return h("b", null, ...inline(inner, names));
  if (groups.italic) return h("i", null, ...inline(inner, names));
  if (groups.strike) return h("s", null, ...inline(inner, names));
  if (groups.bare) return link(unescape(typed), unescape(typed));
  return emojiNode(inner, typed);
}

function codeText(text) {
  return text.split(/(<[^<>\n]+>)/).map((part) => {
    const address = /^<(https?:[^|>]+)(?:\|([^>]*))?>$/.exec(part);
    return unescape(address ? (address[2] ?? address[1]) : part);
  });
}

function token(inner, typed, names) {
  const bar = inner.indexOf("|");
  const target = bar < 0 ? inner : inner.slice(0, bar);
  const label = bar < 0 ? null : inner.slice(bar + 1);
  if (/^@[A-Z0-9]+$/.test(target)) return userMention(target.slice(1), names);
  if (/^#[A-Z0-9]+$/.test(target)) return channelMention(target.slice(1), names);
  if (target.startsWith("!")) return special(target.slice(1), label, names);
  const address = unescape(target);
  if (webAddress(address)) return link(address, ...(label ? plain(label) : [address]));
  if (/^(mailto|tel):/.test(target)) return h("span", null, unescape(label ?? target.replace(/^\w+:/, "")));
  return unescape(typed);
}

function userMention(id, names) {
  const own = id === names.me;
  return h("span", { class: own ? "mention own" : "mention" }, `@${names.user(id)}`);
}

function channelMention(id, names) {
  return h("button", { type: "button", class: "mention plain", onclick: () => names.openChannel(id) }, `#${names.channel(id)}`);
}

function special(what, label) {
  if (/^(channel|here|everyone)$/.test(what)) return h("span", { class: "mention everyone" }, `@${what}`);
  if (what.startsWith("date^")) return date(what, label);
  if (what.startsWith("subteam^")) return h("span", { class: "mention" }, unescape(label ?? "@group"));
  return unescape(label ?? `<!${what}>`);
}

function date(what, label) {
  const [, seconds, format = "", address] = what.split("^");
  const moment = new Date(Number(seconds) * 1000);
  if (!Number.isFinite(Number(seconds)) || Number.isNaN(moment.getTime())) return unescape(label ?? what);
  const shown = unescape(format).replace(/\{(\w+)\}/g, (typed, name) => dateForm(moment, name) ?? typed);
  const node = h("time", { datetime: moment.toISOString(), title: moment.toLocaleString() }, shown);
  return address ? link(unescape(address), node) : node;
}

const DATES = {
  date_num: { year: "numeric", month: "2-digit", day: "2-digit" },
  date_slash: { year: "numeric", month: "2-digit", day: "2-digit" },
  date: { year: "numeric", month: "long", day: "numeric" },
  date_short: { year: "numeric", month: "short", day: "numeric" },
  date_long: { weekday: "long", year: "numeric", month: "long", day: "numeric" },
  time: { hour: "numeric", minute: "2-digit" },
  time_secs: { hour: "numeric", minute: "2-digit", second: "2-digit" },
};

function dateForm(moment, name) {
  if (name === "ago") return ago(moment);
  if (name === "date_num") return moment.toLocaleDateString("sv-SE"); // year-month-day
  const pretty = name.endsWith("_pretty") ? relativeDay(moment) : null;
  const form = DATES[name.replace(/_pretty$/, "")];
  return pretty ?? (form ? moment.toLocaleString(undefined, form) : null);
}

function relativeDay(moment) {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(moment).setHours(0, 0, 0, 0)) / 86400000);
  return { 0: "today", 1: "yesterday", [-1]: "tomorrow" }[days] ?? null;
}

const STEPS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

function ago(moment) {
  const gone = (moment.getTime() - Date.now()) / 1000;
  const [unit, size] = STEPS.find(([, length]) => Math.abs(gone) >= length) ?? STEPS[3];
  return new Intl.RelativeTimeFormat(undefined, { numeric: "auto" }).format(Math.round(gone / size), unit);
}

function emojiNodes(text) {
  return text.split(new RegExp(`(${EMOJI_NAME.source.replace("(", "(?:")})`)).map((part) => {
    const name = /^:(.+):$/.exec(part);
    return name ? emojiNode(name[1], part) : part;
  });
}

function emojiNode(name, typed) {
  const character = emoji(name);
  return character ? h("span", { class: "emoji", role: "img", "aria-label": name.replace(/_/g, " "), title: typed }, character) : typed;
}

/** Nodes for a rich_text block. */
export function richText(block, names) {
  return (block.elements ?? []).map((part) => richPart(part, names));
}

function richPart(part, names) {
  const inner = () => (part.elements ?? []).map((piece) => richPiece(piece, names));
  if (part.type === "rich_text_preformatted") return h("pre", { class: "pre" }, ...inner());
  if (part.type === "rich_text_quote") return h("blockquote", null, ...inner());
  if (part.type === "rich_text_list") {
    const items = (part.elements ?? []).map((item) => h("li", null, richPart(item, names)));
    return h(part.style === "ordered" ? "ol" : "ul", { class: `rich-list indent-${Math.min(part.indent ?? 0, 4)}` }, ...items);
  }
  return h("div", { class: "rich-section" }, ...inner());
}

function richPiece(piece, names) {
  let node = richLeaf(piece, names);
  const style = piece.style ?? {};
  if (style.code) node = h("code", null, node);
  if (style.strike) node = h("s", null, node);
  if (style.italic) node = h("i", null, node);
  if (style.bold) node = h("b", null, node);
  return node;
}

function richLeaf(piece, names) {
  switch (piece.type) {
    case "text": return document.createTextNode(piece.text ?? "");
    case "link": return link(piece.url ?? "", piece.text ?? piece.url ?? "");
    case "emoji": return h("span", null, emojiNode(piece.name ?? "", `:${piece.name}:`));
    case "user": return userMention(piece.user_id ?? "", names);
    case "channel": return channelMention(piece.channel_id ?? "", names);
    case "broadcast": return h("span", { class: "mention everyone" }, `@${piece.range}`);
    case "usergroup": return h("span", { class: "mention" }, `@${piece.usergroup_id}`);
    case "date": return h("time", null, dateText(piece));
    case "color": return h("code", null, piece.value ?? "");
    default: return document.createTextNode(piece.text ?? piece.fallback ?? "");
  }
}

function dateText(piece) {
  const node = date(`date^${piece.timestamp}^${escape(piece.format ?? "{date} {time}")}`, piece.fallback ?? null);
  return typeof node === "string" ? node : node.textContent;
}
