// The sidebar: current user, channels (bold: unread; a number: mentions), direct messages, the app.

import { arrange, h, icon, iconButton, keepingFocus } from "./dom.js";
import { avatar } from "./messages.js";
import { openMenu } from "./popups.js";

/** `actions`: openChannel(id), openPerson(userId), openApp(), actAs(userId), closeDrawer(). */
export class Sidebar {
  constructor(node, store, actions) {
    Object.assign(this, { node, store, actions });
    this.rows = new Map();
    this.title = h("div", { class: "team" });
    this.lists = h("nav", { class: "lists", "aria-label": "Channels and direct messages" });
    this.person = h("button", { type: "button", class: "person", "aria-haspopup": "menu", "aria-expanded": "false", onclick: ({ currentTarget }) => this.openPeople(currentTarget) });
    node.append(h("div", { class: "sidebar-top" }, this.title, iconButton("close", "Close the list", actions.closeDrawer, { class: "icon-button drawer-close" })), this.lists, this.person);
  }

  draw(currentId) {
    const { store } = this;
    this.title.textContent = store.team.name;
    const channels = [...store.channels.values()];
    const rows = channels.filter((channel) => !channel.is_im).sort((a, b) => a.name.localeCompare(b.name));
    const talks = channels.filter((channel) => channel.is_im);
    const bot = store.bot();
    const talkWith = (userId) => talks.find((channel) => store.partner(channel) === userId);
    const others = store.people().filter((user) => user.id !== store.me);
    keepingFocus(this.lists, () => arrange(this.lists, [
      this.group("Channels", rows.map((channel) => this.row(channel.id, {
        label: channel.name, mark: icon(channel.is_private ? "lock" : channel.is_shared ? "share" : "hash"), unread: channel.unread, mentions: channel.mentions, current: channel.id === currentId,
        open: () => this.actions.openChannel(channel.id),
      }))),
      this.group("Direct messages", others.map((user) => {
        const talk = talkWith(user.id);
        return this.row(talk?.id ?? user.id, {
          label: store.user(user.id), mark: avatar(user.id, store.user(user.id), false, true), unread: talk?.unread, mentions: talk?.mentions, current: talk?.id === currentId && Boolean(talk),
          open: () => this.actions.openPerson(user.id),
        });
      })),
      bot && this.group("Apps", [this.row("app", {
        label: store.user(bot.id), mark: avatar(bot.id, store.user(bot.id), true, true), unread: talkWith(bot.id)?.unread, mentions: talkWith(bot.id)?.mentions,
        current: currentId === "home" || (talkWith(bot.id)?.id === currentId && Boolean(currentId)), open: () => this.actions.openApp(),
      })]),
    ].filter(Boolean)));
    const me = store.user(store.me);
    this.person.replaceChildren(avatar(store.me, me, false), h("span", { class: "person-words" }, h("small", null, "Acting as"), h("b", null, me)), icon("down"));
    this.person.setAttribute("aria-label", `Acting as ${me}. Change person`);
  }

  group(name, rows) {
    const known = this.rows.get(`group ${name}`) ?? h("section", null, h("h2", null, name), h("ul"));
    this.rows.set(`group ${name}`, known);
    arrange(known.lastChild, rows);
    known.hidden = !rows.length;
    return known;
  }

  /** Reuse a row's node while its content is unchanged, so that a redraw never swallows a click. */
  row(id, { label, mark, unread, mentions, current, open }) {
    const looks = JSON.stringify([label, mark.outerHTML, unread, mentions, current]);
    const known = this.rows.get(id);
    if (known?.looks === looks) return known.item;
    const item = h("li", null, h("button", {
      type: "button", class: `channel-row${current ? " current" : ""}${unread ? " unread" : ""}`, "aria-current": current ? "page" : null, data: { focus: `channel-${id}`, channel: id }, onclick: open,
    }, mark, h("span", { class: "channel-name" }, label), unread && !mentions ? h("span", { class: "visually-hidden" }, ", unread") : null,
      mentions ? h("span", { class: "count" }, h("span", { "aria-hidden": "true" }, String(mentions)), h("span", { class: "visually-hidden" }, mentions === 1 ? ", 1 mention" : `, ${mentions} mentions`)) : null));
    this.rows.set(id, { looks, item });
    return item;
  }

  openPeople(anchor) {
    const { store } = this;
    openMenu(anchor, [{ heading: "Act as" }, ...store.people().map((user) => ({
      label: store.user(user.id), description: `@${user.name}`, icon: avatar(user.id, store.user(user.id), false, true), checked: user.id === store.me, onPick: () => this.actions.actAs(user.id),
    }))], { label: "Act as" });
  }

  /** Channels in display order, for Alt+Up and Alt+Down. */
  order() {
    return [...this.lists.querySelectorAll(".channel-row")];
  }
}
