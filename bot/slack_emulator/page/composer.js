// The message box: slash-command completion, mentions, history, files, shortcuts.

import { h, icon, iconButton } from "./dom.js";
import { openMenu, toast } from "./popups.js";

const HIGHEST_PX = 220;

/**
 * `surface`: {store, label, thread, onSay(text), onCommand(text), onUpload(file), onShortcut(callbackId), onUp()}.
 * If a promise is rejected, the text is restored to the box.
 */
export class Composer {
  constructor(surface) {
    this.surface = surface;
    this.history = [];
    this.at = -1;
    this.choices = [];
    const id = surface.thread ? "thread-box" : "box";
    this.box = h("textarea", {
      id, rows: "1", class: "box", placeholder: surface.label, "aria-label": surface.label, autocomplete: "off",
      role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": `${id}-list`,
      oninput: () => { this.fit(); this.suggest(); },
      onkeydown: (event) => this.onKey(event),
      onblur: () => setTimeout(() => { if (document.activeElement !== this.box) this.hide(); }, 120),
    });
    this.list = h("div", { class: "completion", id: `${id}-list`, role: "listbox", "aria-label": "Commands", hidden: true });
    this.hint = h("div", { class: "usage", hidden: true });
    this.file = h("input", { type: "file", hidden: true, tabindex: "-1", "aria-hidden": "true", onchange: () => this.upload() });
    const tools = surface.thread ? [] : [
      iconButton("bolt", "Shortcuts", ({ currentTarget }) => this.openShortcuts(currentTarget), { "aria-haspopup": "menu", "aria-expanded": "false" }),
      iconButton("clip", "Attach a file", () => this.file.click()),
    ];
    this.node = h("form", { class: "composer", onsubmit: (event) => { event.preventDefault(); this.send(); } },
      this.list, this.hint, this.box,
      h("div", { class: "composer-foot" }, ...tools,
        h("span", { class: "composer-help" }, h("kbd", null, "Enter"), " to send, ", h("kbd", null, "Shift+Enter"), " for a new line"),
        h("button", { type: "submit", class: "icon-button send", "aria-label": "Send", title: "Send" }, icon("send"))),
      this.file);
  }

  get text() {
    return this.box.value;
  }

  set(text, focus = true) {
    this.box.value = text;
    this.fit();
    if (focus) {
      this.box.focus();
      this.box.setSelectionRange(text.length, text.length);
      this.suggest();
    }
  }

  fit() {
    this.box.style.height = "auto";
    this.box.style.height = `${Math.min(this.box.scrollHeight, HIGHEST_PX)}px`;
  }

  async send() {
    const text = this.box.value.trim();
    if (!text) return;
    this.hide();
    this.history = [text, ...this.history.filter((old) => old !== text)].slice(0, 50);
    this.at = -1;
    this.set("", false);
    this.hint.hidden = true;
    try {
      if (/^\/\S/.test(text)) await this.surface.onCommand(text);
      else await this.surface.onSay(this.mentions(text));
    } catch (error) {
      toast(error.message);
      if (!this.box.value) this.set(text);
    }
  }

  /** Convert "@anna" and "#soc" to Slack's mention syntax if the user or channel exists. */
  mentions(text) {
    const users = new Map([...this.surface.store.users.values()].map((user) => [user.name.toLowerCase(), user.id]));
    const channels = new Map([...this.surface.store.channels.values()].filter((c) => !c.is_im).map((c) => [c.name.toLowerCase(), c.id]));
    return text
      .replace(/(^|[\s(])@([\w.-]+)/g, (typed, before, name) => (users.has(name.toLowerCase()) ? `${before}<@${users.get(name.toLowerCase())}>` : typed))
      .replace(/(^|[\s(])#([\w.-]+)/g, (typed, before, name) => (channels.has(name.toLowerCase()) ? `${before}<#${channels.get(name.toLowerCase())}>` : typed));
  }

  async upload() {
    const [file] = this.file.files;
    this.file.value = "";
    if (!file) return;
    await Promise.resolve(this.surface.onUpload(file)).catch((error) => toast(error.message));
  }

  openShortcuts(anchor) {
    const rows = this.surface.store.shortcuts.filter((shortcut) => shortcut.type === "global").map((shortcut) => ({
      label: shortcut.name, icon: icon("bolt"), onPick: () => this.surface.onShortcut(shortcut.callback_id),
    }));
    openMenu(anchor, rows.length ? rows : [{ label: "This app has no global shortcuts", onPick: () => {} }], { label: "Shortcuts" });
  }

  // completion

  found() {
    const typed = this.box.value;
    const { store } = this.surface;
    if (/^\/\S*$/.test(typed)) {
      const wanted = typed.toLowerCase();
      return store.commands.filter((command) => command.command.toLowerCase().startsWith(wanted)).map((command) => ({
        label: command.command, hint: command.usage_hint, description: command.description, text: `${command.command} `,
      }));
    }
    const upto = typed.slice(0, this.box.selectionStart);
    const mention = /(^|\s)@([\w.-]*)$/.exec(upto);
    if (!mention) return [];
    return [...store.users.values()].filter((user) => `${user.name} ${user.real_name}`.toLowerCase().includes(mention[2].toLowerCase())).slice(0, 6).map((user) => ({
      label: `@${user.name}`, description: user.real_name, text: `${upto.slice(0, upto.length - mention[2].length)}${user.name} ${typed.slice(upto.length)}`,
    }));
  }

  suggest() {
    this.choices = this.found();
    this.mark = 0;
    this.list.hidden = !this.choices.length;
    this.box.setAttribute("aria-expanded", String(Boolean(this.choices.length)));
    const id = this.list.id;
    this.list.replaceChildren(...this.choices.map((choice, index) => h(
      "div", { class: "option", role: "option", id: `${id}-${index}`, onpointerdown: (event) => { event.preventDefault(); this.take(index); } },
      h("span", { class: "menu-words" }, h("span", null, h("b", null, choice.label), choice.hint ? h("span", { class: "faint" }, ` ${choice.hint}`) : null), choice.description ? h("small", null, choice.description) : null),
    )));
    this.showMark();
    this.showUsage();
  }

  showMark() {
    [...this.list.children].forEach((row, index) => {
      row.classList.toggle("at", index === this.mark);
      row.setAttribute("aria-selected", String(index === this.mark));
    });
    if (this.choices.length) this.box.setAttribute("aria-activedescendant", `${this.list.id}-${this.mark}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  showUsage() {
    const typed = /^(\/\S+)\s/.exec(this.box.value);
    const command = typed && this.surface.store.commands.find((known) => known.command === typed[1]);
    this.hint.hidden = !command;
    if (command) this.hint.replaceChildren(h("b", null, command.command), ` ${command.usage_hint ?? ""}`, command.description ? h("span", { class: "faint" }, `  ${command.description}`) : "");
  }

  take(index) {
    this.set(this.choices[index].text);
    this.hide();
  }

  hide() {
    this.choices = [];
    this.list.replaceChildren();
    this.list.hidden = true;
    this.box.setAttribute("aria-expanded", "false");
    this.box.removeAttribute("aria-activedescendant");
  }

  onKey(event) {
    if (event.isComposing) return;
    if (this.choices.length && this.completionKey(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.send();
    } else if (event.key === "ArrowUp" && !event.altKey && !event.shiftKey && this.recallable()) {
      event.preventDefault();
      this.recall(1);
    } else if (event.key === "ArrowDown" && !event.altKey && this.at >= 0 && this.recallable()) {
      event.preventDefault();
      this.recall(-1);
    } else if (event.key === "Tab" && event.shiftKey && !this.box.value) {
      event.preventDefault();
      this.surface.onUp?.();
    }
  }

  completionKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && !event.altKey) {
      this.mark = (this.mark + step + this.choices.length) % this.choices.length;
      this.showMark();
    } else if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey && this.choices[this.mark].text.trim() !== this.box.value.trim())) {
      this.take(this.mark);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      this.hide();
    } else return false;
    event.preventDefault();
    return true;
  }

  recallable() {
    return this.history.length && (!this.box.value || this.box.value === this.history[this.at]);
  }

  recall(step) {
    this.at = Math.max(-1, Math.min(this.history.length - 1, this.at + step));
    this.set(this.history[this.at] ?? "");
    this.hide();
  }
}
