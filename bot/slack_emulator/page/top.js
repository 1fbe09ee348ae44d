// Header of the middle column: channel name, tabs, and tools of the page.

import { h, icon, iconButton } from "./dom.js";
import { openMenu } from "./popups.js";

const THEMES = { auto: "As the system", light: "Light", dark: "Dark" };
const THEME_ICONS = { auto: "auto", light: "sun", dark: "moon" };
const theme = () => localStorage.getItem("workspace.theme") ?? "auto";

/** `state`: {channel, atHome, hasHome, pointersOpen, phoneOpen, developerOpen}; `actions`: openDrawer, openHome, openMessages, togglePointers, togglePhone, toggleDeveloper. */
export class Top {
  constructor(store, actions) {
    Object.assign(this, { store, actions });
    this.node = h("header", { class: "top" });
  }

  draw(state) {
    const { channel, atHome } = state;
    const bot = this.store.bot();
    const withApp = atHome || (channel?.is_im && this.store.partner(channel) === bot?.id);
    const name = withApp ? this.store.user(bot.id) : (channel ? this.store.title(channel) : "");
    const kind = channel?.is_im || withApp ? null : icon(channel?.is_private ? "lock" : "hash");
    this.node.replaceChildren(
      iconButton("menu", "Channels and people", this.actions.openDrawer, { class: "icon-button drawer-open" }),
      h("h1", null, kind, h("span", null, name)),
      ...this.badges(channel),
      withApp && state.hasHome ? this.tabs(atHome) : this.members(channel),
      this.tools(state));
  }

  badges(channel) {
    const shared = channel?.is_shared ? h("span", { class: "badge shared", title: "People of other companies read this channel" }, "Shared") : null;
    const archived = channel?.is_archived ? h("span", { class: "badge" }, "Archived") : null;
    return [shared, archived].filter(Boolean);
  }

  members(channel) {
    const members = channel && !channel.is_im ? (channel.members ?? []) : [];
    return members.length ? h("span", { class: "members", title: members.map((id) => this.store.user(id)).join(", ") }, `${members.length} members`) : "";
  }

  tabs(atHome) {
    const tab = (label, on, onclick) => h("button", { type: "button", role: "tab", "aria-selected": String(on), onclick }, label);
    return h("div", { class: "segments", role: "tablist", "aria-label": "App" },
      tab("Home", atHome, this.actions.openHome), tab("Messages", !atHome, this.actions.openMessages));
  }

  tools({ pointersOpen, phoneOpen, developerOpen }) {
    const tool = (name, label, on, onclick, more = {}) => h("button", { type: "button", class: "tool-button", "aria-pressed": String(on), "aria-label": label, title: label, onclick, ...more }, icon(name), h("span", null, label));
    return h("div", { class: "top-tools" },
      this.store.pointers.length ? tool("compass", "Things to try", pointersOpen, this.actions.togglePointers) : null,
      tool("bell", "Phone", phoneOpen, this.actions.togglePhone, { title: "What this person's phone showed" }),
      tool("code", "Developer", developerOpen, this.actions.toggleDeveloper, { class: "tool-button seldom", title: "Raw payloads both ways" }),
      iconButton(THEME_ICONS[theme()], "Colours: light, dark or the system's", ({ currentTarget }) => this.openThemes(currentTarget), { "aria-haspopup": "menu", "aria-expanded": "false" }));
  }

  openThemes(anchor) {
    const choices = Object.entries(THEMES).map(([name, label]) => ({ label, checked: name === theme(), onPick: () => this.setTheme(name) }));
    openMenu(anchor, choices, { label: "Colours", toRight: true });
  }

  setTheme(name) {
    if (name === "auto") {
      localStorage.removeItem("workspace.theme");
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem("workspace.theme", name);
      document.documentElement.dataset.theme = name;
    }
    this.actions.redraw();
  }
}
