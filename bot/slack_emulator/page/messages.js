// The messages of a channel or thread, updated in place by ts.

import { arrange, h, icon, iconButton, keepingFocus } from "./dom.js";
import { patchAttachments, patchBlocks } from "./blocks.js";
import { patchFiles } from "./files.js";
import { mrkdwn } from "./mrkdwn.js";
import { openMenu, toast } from "./popups.js";
import { Entered } from "./store.js";

const RUN_S = 300; // messages of one user within this time are grouped
const NEAR_PX = 90; // this close to the end counts as scrolled to the end
const LOADED_S = Date.now() / 1000; // of the page: Slack shows an ephemeral message only until the client reloads

const seconds = (ts) => Number(ts);
const dayOf = (ts) => new Date(seconds(ts) * 1000).toDateString();
const shortTime = (ts) => new Date(seconds(ts) * 1000).toLocaleTimeString(undefined, { hour: "numeric", minute: "2-digit" });
const fullTime = (ts) => new Date(seconds(ts) * 1000).toLocaleString(undefined, { dateStyle: "full", timeStyle: "medium" });

function dayName(ts) {
  const day = new Date(seconds(ts) * 1000);
  const gone = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(day).setHours(0, 0, 0, 0)) / 86400000);
  if (gone === 0) return "Today";
  if (gone === 1) return "Yesterday";
  return day.toLocaleDateString(undefined, { weekday: "long", month: "long", day: "numeric" });
}

export function avatar(id, name, isBot, small = false) {
  const tone = [...String(id)].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) % 997, 7) % 8;
  const letters = String(name).split(/[\s(]+/).filter(Boolean).slice(0, 2).map((word) => [...word][0]).join("").toUpperCase();
  return h("span", { class: `avatar tone-${tone}${small ? " small" : ""}`, "aria-hidden": "true" }, isBot ? icon("app") : letters);
}

/**
 * `surface`: {store, wire, channel, thread (root ts or null), openThread(ts), shortcut(callbackId, message)}; `wire` has act and options.
 */
export class MessageList {
  constructor(surface) {
    this.surface = surface;
    this.items = new Map();
    this.days = new Map();
    this.firstUnread = null;
    this.list = h("div", { class: "messages", role: "log", "aria-label": surface.thread ? "Thread" : "Messages", "aria-live": "polite" });
    this.jump = h("button", { type: "button", class: "jump", hidden: true, onclick: () => this.toEnd() }, icon("down"), "New messages");
    this.intro = h("div", { class: "intro" });
    this.scroller = h("div", { class: "scroller", tabindex: "-1" }, this.intro, this.list);
    this.node = h("div", { class: "message-area" }, this.scroller, this.jump);
    this.scroller.addEventListener("scroll", () => { if (this.atEnd()) this.jump.hidden = true; });
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    this.sizes = new ResizeObserver(() => { if (this.pinned) this.toEnd(); });
    this.sizes.observe(this.list);
    this.sizes.observe(this.scroller);
    this.scroller.addEventListener("scroll", () => { this.pinned = this.atEnd(); });
    this.pinned = true;
  }

  atEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < NEAR_PX;
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.jump.hidden = true;
  }

  /** Replace the messages. Notices created by the page stay. */
  load(stored, unread = 0) {
    const messages = stored.filter((message) => !message.ephemeral || seconds(message.ts) >= LOADED_S);
    const fresh = new Set(messages.map((message) => message.ts));
    for (const [ts, item] of this.items) if (!fresh.has(ts) && !item.message.local) this.items.delete(ts);
    for (const message of messages) this.keep(message);
    const others = messages.filter((message) => message.user !== this.surface.store.me && !message.ephemeral);
    if (unread) this.firstUnread = others[Math.max(0, others.length - unread)]?.ts ?? null;
    this.draw();
    if (this.firstUnread) this.toUnread();
  }

  /** As Slack opens a channel: where this person has left off. */
  toUnread() {
    this.scroller.scrollTop += this.unreadLine.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top;
    this.pinned = this.atEnd();
    this.jump.hidden = this.pinned;
  }

  put(message) {
    const known = this.items.has(message.ts);
    const end = this.pinned;
    this.keep(message);
    this.draw();
    const own = message.user === this.surface.store.me && !known;
    if (own || end) this.toEnd();
    else if (!known) this.jump.hidden = false;
  }

  remove(ts) {
    this.items.delete(ts);
    this.draw();
  }

  get(ts) {
    return this.items.get(ts)?.message;
  }

  keep(message) {
    const item = this.items.get(message.ts) ?? this.makeItem(message);
    item.message = message;
    this.items.set(message.ts, item);
  }

  makeItem(message) {
    const { store, wire, channel } = this.surface;
    const entered = new Entered();
    const at = () => ({ channel, ts: message.ts });
    const container = {
      names: store,
      entered,
      channel,
      act: (block, element, value) => wire.act(at(), block, element, value, this.blocksOf(message.ts), container),
      options: (block, element, query) => wire.options(at(), block, element, query),
    };
    return { message, container, node: null, drawn: null };
  }

  blocksOf(ts) {
    const message = this.get(ts) ?? {};
    return [...(message.blocks ?? []), ...(message.attachments ?? []).flatMap((attachment) => attachment.blocks ?? [])];
  }

  draw() {
    const shown = [...this.items.values()].filter((item) => !item.hidden)
      .sort((a, b) => seconds(a.message.ts) - seconds(b.message.ts));
    const replies = shown.filter((item) => !item.message.ephemeral).length - 1;
    const nodes = [];
    let before = null;
    for (const item of shown) {
      const newDay = !before || dayOf(before.ts) !== dayOf(item.message.ts);
      if (newDay) nodes.push(this.divider(item.message.ts));
      const marked = item.message.ts === this.firstUnread;
      if (marked) nodes.push((this.unreadLine ??= h("div", { class: "unread-line", role: "separator" }, h("span", null, "New"))));
      this.drawItem(item, !newDay && !marked && before.ts !== this.surface.thread && together(before, item.message));
      nodes.push(item.node);
      if (this.surface.thread === item.message.ts && replies) nodes.push(this.repliesLine(replies));
      before = item.message;
    }
    keepingFocus(this.list, () => arrange(this.list, nodes));
    if (this.pinned) this.toEnd();
  }

  repliesLine(count) {
    this.replies ??= h("div", { class: "replies-line", role: "separator" }, h("span"));
    this.replies.firstChild.textContent = count === 1 ? "1 reply" : `${count} replies`;
    return this.replies;
  }

  divider(ts) {
    const day = dayOf(ts);
    const node = this.days.get(day) ?? h("div", { class: "day", role: "separator" }, h("span", null));
    node.firstChild.textContent = dayName(ts);
    this.days.set(day, node);
    return node;
  }

  drawItem(item, compact) {
    const { message } = item;
    const drawn = JSON.stringify([message, compact]);
    if (item.drawn === drawn) return;
    item.drawn = drawn;
    item.node ??= h("article", { class: "message", tabindex: "-1", data: { ts: message.ts } },
      h("div", { class: "gutter" }),
      h("div", { class: "message-body" },
        h("div", { class: "ephemeral-note" }), h("div", { class: "byline" }),
        h("div", { class: "text message-text" }), h("div", { class: "blocks" }), h("div", { class: "attachments" }),
        h("div", { class: "files" }), h("div", { class: "foot" })),
      h("div", { class: "tools", role: "toolbar", "aria-label": "Message actions" }));
    item.node.classList.toggle("compact", compact);
    item.node.classList.toggle("ephemeral", Boolean(message.ephemeral));
    item.node.classList.toggle("card", message.blocks?.length > 1);
    keepingFocus(item.node, () => this.fill(item, compact));
  }

  fill(item, compact) {
    const { message, container, node } = item;
    const { store } = this.surface;
    const author = authorOf(message, store);
    const [gutter, body, tools] = node.children;
    const [note, byline, text, blocks, attachments, files, foot] = body.children;
    node.setAttribute("aria-label", `${author.name}, ${shortTime(message.ts)}${message.ephemeral ? ", only visible to you" : ""}`);
    gutter.replaceChildren(compact ? timeOf(message.ts, "gutter-time") : avatar(author.id, author.name, author.isBot));
    note.replaceChildren(...(message.ephemeral ? [icon("eye"), "Only visible to you"] : []));
    byline.replaceChildren(...(compact ? [] : [
      h("span", { class: "author" }, author.name), author.isBot ? h("span", { class: "badge" }, "App") : "", timeOf(message.ts, "time")]));
    const edited = message.edited ? [h("span", { class: "edited", title: "This message was edited" }, " (edited)")] : [];
    const words = message.blocks?.length || !message.text ? [] : mrkdwn(message.text, store);
    text.replaceChildren(...(message.subtype === "tombstone" ? [h("i", null, "This message was deleted.")] : [...words, ...(words.length ? edited : [])]));
    patchBlocks(blocks, message.blocks ?? [], container);
    patchAttachments(attachments, message.attachments ?? [], container);
    patchFiles(files, message.files ?? []);
    arrange(foot, [...(words.length ? [] : edited), ...this.footOf(item)]);
    arrange(tools, message.ephemeral || message.subtype === "tombstone" ? [] : (item.tools ??= this.toolsOf(item)));
  }

  /** Reuse the same nodes, so that a redraw never swallows a click. */
  footOf(item) {
    const { message } = item;
    if (message.ephemeral) {
      const dismiss = () => { item.hidden = true; this.draw(); };
      return [(item.dismiss ??= h("button", { type: "button", class: "quiet-link", data: { focus: "dismiss" }, onclick: dismiss }, "Dismiss message"))];
    }
    if (this.surface.thread || !message.reply_count) return [];
    const count = message.reply_count === 1 ? "1 reply" : `${message.reply_count} replies`;
    const people = (message.reply_users ?? []).slice(0, 4).map((id) => avatar(id, this.surface.store.user(id), this.surface.store.users.get(id)?.is_bot, true));
    item.link ??= h("button", { type: "button", class: "thread-link", data: { focus: "thread" }, onclick: () => this.surface.openThread(message.ts) });
    item.link.replaceChildren(...people, h("b", null, count), message.latest_reply ? h("small", null, `Last reply ${dayName(message.latest_reply).toLowerCase()} at ${shortTime(message.latest_reply)}`) : "");
    return [item.link];
  }

  toolsOf(item) {
    const { ts } = item.message;
    const reply = iconButton("reply", "Reply in thread", () => this.surface.openThread(item.message.thread_ts ?? ts), { data: { focus: "reply" } });
    const more = iconButton("more", "More actions", ({ currentTarget }) => this.openMore(currentTarget, item.message), {
      data: { focus: "more" }, "aria-haspopup": "menu", "aria-expanded": "false",
    });
    return this.surface.thread ? [more] : [reply, more];
  }

  openMore(anchor, message) {
    const { store } = this.surface;
    const app = store.bot();
    const shortcuts = store.shortcuts.filter((shortcut) => shortcut.type === "message").map((shortcut) => ({
      label: shortcut.name, description: app ? store.user(app.id) : null, icon: icon("bolt"), onPick: () => this.surface.shortcut(shortcut.callback_id, message),
    }));
    openMenu(anchor, [
      ...shortcuts,
      { label: "Reply in thread", icon: icon("reply"), onPick: () => this.surface.openThread(message.thread_ts ?? message.ts) },
      { label: "Copy text", icon: icon("copy"), onPick: () => copy(message) },
    ], { label: "More actions", toRight: true });
  }

  /** Arrow keys move between messages; Enter or the right arrow opens the actions, t the thread. */
  onKey(event) {
    const row = event.target.closest(".message");
    if (event.target !== row || !row) return;
    const rows = [...this.list.querySelectorAll(".message")];
    const to = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (to && !event.altKey) {
      event.preventDefault();
      rows[rows.indexOf(row) + to]?.focus();
    } else if (event.key === "Enter" || event.key === "ArrowRight") {
      event.preventDefault();
      row.querySelector("button, a, input")?.focus();
    } else if (event.key === "t" && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      this.surface.openThread(row.dataset.ts);
    }
  }

  /** Scroll to a message and focus it; false if it is not in the list. */
  reveal(ts) {
    const node = this.items.get(ts)?.node;
    if (!node) return false;
    this.pinned = false;
    node.scrollIntoView({ block: "center" });
    node.focus({ preventScroll: true });
    return true;
  }

  /** Likewise the newest card with these words. */
  revealCard(words) {
    const cards = [...this.items.values()].filter(({ message }) => !message.ephemeral && message.blocks?.length > 1 && message.text?.includes(words));
    return this.reveal(cards.at(-1)?.message.ts);
  }

  focusLast() {
    [...this.list.querySelectorAll(".message")].at(-1)?.focus();
  }

  end() {
    this.sizes.disconnect();
  }
}

function together(before, message) {
  if (!before || before.ephemeral || message.ephemeral || message.subtype === "tombstone") return false;
  if (before.user !== message.user || before.username !== message.username) return false;
  return seconds(message.ts) - seconds(before.ts) < RUN_S;
}

function authorOf(message, store) {
  if (message.local) return { id: "USLACKBOT", name: "Workspace", isBot: true };
  const user = store.users.get(message.user) ?? (message.bot_id ? store.bot() : null);
  return {
    id: user?.id ?? message.user ?? "?",
    name: message.username ?? (user ? store.user(user.id) : (message.user ?? "Unknown")),
    isBot: Boolean(user?.is_bot || message.bot_id),
  };
}

const timeOf = (ts, className) => h("time", { class: className, datetime: new Date(seconds(ts) * 1000).toISOString(), title: fullTime(ts) }, className === "time" ? shortTime(ts) : shortTime(ts).replace(/\s*[AP]M$/i, ""));

function copy(message) {
  const text = message.text || (message.blocks ?? []).map((block) => block.text?.text ?? "").join("\n");
  navigator.clipboard.writeText(text).then(() => toast("Copied."), () => toast("The browser did not allow copying."));
}
