// The page controller: navigation, live events, keyboard shortcuts.

import { Live, read, send } from "./api.js";
import { Composer } from "./composer.js";
import { Developer } from "./developer.js";
import { announce, h, icon } from "./dom.js";
import { current, elementsOf, wire as wireValue } from "./elements.js";
import { MessageList } from "./messages.js";
import { Pane } from "./pane.js";
import { closePopup, popupIsOpen, toast } from "./popups.js";
import { Sidebar } from "./sidebar.js";
import { Store } from "./store.js";
import { Top } from "./top.js";
import { Home, Modals } from "./views.js";

const byId = (id) => document.getElementById(id);
const app = byId("app");
const main = byId("main");
const NOTICE_ONCE_MS = 2500; // the response and the socket may report the same error

class Page {
  constructor() {
    this.store = new Store();
    this.drafts = new Map();
    this.open = { channel: null, list: null, home: false };
    this.notices = [];
    this.held = 0;
    this.late = [];
    this.store.openChannel = (id) => this.openChannel(id);
    this.wire = this.makeWire();
    this.modals = new Modals(byId("modal"), this.store, this.wire);
    this.home = new Home(this.store, this.wire);
    this.pane = new Pane(byId("pane"), this);
    this.top = new Top(this.store, {
      openDrawer: () => this.drawer(true), openHome: () => this.openHome(), openMessages: () => this.openPerson(this.store.bot().id),
      togglePointers: () => this.pane.togglePointers(), togglePhone: () => this.pane.togglePhone(), toggleDeveloper: () => this.toggleDeveloper(), redraw: () => this.drawTop(),
    });
    this.developer = new Developer(byId("developer"), () => this.toggleDeveloper(false));
    this.sidebar = new Sidebar(byId("sidebar"), this.store, {
      openChannel: (id) => this.openChannel(id), openPerson: (id) => this.openPerson(id), openApp: () => this.openApp(),
      actAs: (id) => this.actAs(id), closeDrawer: () => this.drawer(false),
    });
    byId("scrim").addEventListener("click", () => this.drawer(false));
    document.addEventListener("keydown", (event) => this.onKey(event));
    document.addEventListener("visibilitychange", () => this.markRead());
    window.addEventListener("hashchange", () => this.follow());
    this.toggleDeveloper(localStorage.getItem("workspace.developer") === "open");
  }

  // requests of blocks and views

  makeWire() {
    const who = (given) => ({ user: this.store.me, ...given });
    return {
      act: async (at, block, element, value, blocks, container) => {
        await this.sendTyped(at, blocks, container);
        const answer = await send("/page/action", who({ ...at, block_id: block.block_id, action_id: element.action_id, value }));
        if (answer.ok === false && answer.text) this.notice(at.channel, answer.text);
      },
      options: async (at, block, element, query) => {
        const answer = await send("/page/options", who({ ...at, block_id: block.block_id, action_id: element.action_id, query }));
        if (answer.error) throw new Error("The app could not load these options.");
        return answer;
      },
      submit: async (viewId, values) => {
        const answer = await send("/page/view/submit", who({ view_id: viewId, values }));
        if (answer.ok === false && answer.text) throw new Error(answer.text);
        return answer;
      },
      upload: async (file) => (await send("/page/upload", this.fileForm(file))).file,
      closeView: (viewId) => send("/page/view/close", who({ view_id: viewId })),
    };
  }

  /** Send typed values of the other fields first: the app receives them in the `state` of the action. */
  async sendTyped(at, blocks, container) {
    for (const block of blocks ?? []) {
      if (block.type !== "input" || block.dispatch_action) continue;
      for (const element of elementsOf(block)) {
        if (!container.entered.has(block.block_id, element.action_id)) continue;
        const value = wireValue(current(element, block, container));
        await send("/page/action", { user: this.store.me, ...at, block_id: block.block_id, action_id: element.action_id, value }).catch(() => null);
      }
    }
  }

  // start, switch of user, reconnect

  async start() {
    const [user] = this.wanted();
    const state = await read("/page/state", { user }).catch(() => read("/page/state"));
    this.store.load(state);
    this.connect();
  }

  /** User and channel from the URL fragment (#/U0ANNA/C0SOC), so that two windows can act as two users. */
  wanted() {
    const [, user, channel] = location.hash.split("/");
    const asked = new URLSearchParams(location.search).get("channel");
    return [user || sessionStorage.getItem("workspace.user"), channel || asked];
  }

  follow() {
    const [user, channel] = this.wanted();
    if (user && user !== this.store.me && this.store.users.has(user)) this.actAs(user, channel);
    else if (channel === "home" && !this.open.home) this.openHome();
    else if (channel && channel !== this.open.channel && this.store.channels.has(channel)) this.openChannel(channel);
  }

  connect() {
    this.live?.stop();
    this.live = new Live({
      user: this.store.me,
      onOpen: () => this.refresh(),
      onEvent: (event) => (this.held ? this.late.push(event) : this.on(event)),
      onLost: () => this.showConnection(false),
    });
  }

  /** Run `work`; live events that arrive meanwhile are applied afterwards, in order, since what it reads may be older. */
  async holding(work) {
    this.held += 1;
    try {
      return await work();
    } catch (error) {
      return toast(error.message);
    } finally {
      this.held -= 1;
      while (!this.held && this.late.length) this.on(this.late.shift());
    }
  }

  /** Load the full state, at the start and after each reconnect. */
  refresh() {
    const { live } = this;
    return this.holding(async () => {
      const state = await read("/page/state", { user: live.user });
      if (live !== this.live) return null; // the user was switched meanwhile; their own socket loads their state
      this.store.load(state);
      this.showConnection(true);
      this.modals.draw();
      await this.reopen();
      const { afterSwitch } = this;
      this.afterSwitch = null;
      if (!afterSwitch) return null;
      this.pane.offerPointers();
      return this.takePointer(afterSwitch);
    });
  }

  async reopen() {
    if (this.open.coming) return null;
    if (this.open.home) return this.home.draw();
    if (!this.open.channel || !this.store.channels.has(this.open.channel)) return this.openFirst();
    this.drawSidebar();
    this.drawTop();
    if (this.pane.showsPointers) this.pane.showPointers();
    await this.loadMessages();
    if (this.pane.thread) await this.pane.loadThread();
    return null;
  }

  openFirst() {
    const [, channel] = this.wanted();
    if (channel === "home" && this.store.bot()) return this.openHome();
    const ids = [...this.store.channels.keys()];
    const pointed = this.store.pointers.find((pointer) => this.store.channels.has(pointer.channel))?.channel;
    const first = ids.includes(channel) ? channel : (pointed ?? ids[0]);
    this.pane.offerPointers();
    return first ? this.openChannel(first) : null;
  }

  showConnection(up) {
    const node = byId("connection");
    node.hidden = up;
    if (!up) node.textContent = "Not connected. Trying again…";
  }

  async actAs(user, channel = this.open.channel) {
    if (user === this.store.me) return;
    this.leave();
    this.pane.close();
    sessionStorage.setItem("workspace.user", user);
    this.store.me = user;
    this.store.views.clear();
    this.late = [];
    this.modals.draw();
    history.replaceState(null, "", `#/${user}/${channel ?? ""}`);
    this.connect();
    announce(`Now acting as ${this.store.user(user)}`);
  }

  // live events

  on(event) {
    const handler = this[`on_${event.type}`];
    if (handler) handler.call(this, event);
    if (event.type !== "payload") this.tick(event);
  }

  tick(shown) {
    if (this.store.tick(shown) && this.pane.showsPointers) this.pane.showPointers();
  }

  on_message({ channel, message }) {
    this.showMessage(channel, message);
    if (channel === this.open.channel && inChannel(message)) this.markRead();
  }

  on_message_changed({ channel, message }) { this.showMessage(channel, message); }
  on_ephemeral({ channel, message }) { this.showMessage(channel, message); }
  on_ephemeral_replaced({ channel, message }) { this.showMessage(channel, message); }

  on_message_deleted({ channel, ts, message }) {
    if (channel !== this.open.channel) return;
    this.open.list?.remove(ts ?? message.ts);
    this.pane.thread?.list.remove(ts ?? message.ts);
  }

  showMessage(channel, message) {
    if (channel !== this.open.channel) return;
    if (inChannel(message)) this.open.list?.put(message);
    const { thread } = this.pane;
    if (thread && (message.ts === thread.ts || message.thread_ts === thread.ts)) thread.list.put(message);
  }

  on_view_opened({ view }) {
    if ((view.stack_depth ?? 1) <= 1) this.store.views.clear();
    this.store.views.set(view.id, view);
    this.modals.draw();
  }

  on_view_updated({ view }) {
    if (!this.store.views.has(view.id)) return;
    this.store.views.set(view.id, view);
    this.modals.draw();
  }

  on_view_errors(event) { this.on_view_updated(event); }

  on_view_closed({ view }) {
    this.store.views.delete(view.id);
    this.modals.draw();
  }

  on_notification(shown) {
    if (this.store.notifications.some(({ channel, ts }) => channel === shown.channel && ts === shown.ts)) return;
    this.store.notifications.push(shown);
    if (this.pane.showsPhone) this.pane.drawPhone();
  }

  on_home({ view }) {
    this.store.home = view;
    if (this.open.home) this.home.draw();
  }

  on_unread({ channel, unread, mentions }) {
    const known = this.store.channels.get(channel);
    if (!known) return;
    const here = channel === this.open.channel && document.visibilityState === "visible";
    known.unread = here ? 0 : unread;
    known.mentions = here ? 0 : mentions;
    this.drawSidebar();
  }

  on_channel({ channel }) {
    this.store.channels.set(channel.id, channel);
    this.drawSidebar();
    if (channel.id === this.open.channel) this.drawTop();
  }

  on_notice({ channel, text }) { this.notice(channel, text); }
  on_payload(event) { this.developer.add(event); }

  /** A notice from Slack itself, shown like an ephemeral message. */
  notice(channel, text) {
    const now = Date.now();
    this.notices = this.notices.filter((old) => now - old.at < NOTICE_ONCE_MS);
    if (this.notices.some((old) => old.text === text)) return;
    this.notices.push({ text, at: now });
    const list = !channel || channel === this.open.channel ? this.open.list : null;
    if (!list || byId("modal").open) toast(text);
    list?.put({ ts: (now / 1000).toFixed(6), user: "USLACKBOT", text, ephemeral: true, local: true });
  }

  // navigation

  drawSidebar() {
    this.sidebar.draw(this.open.home ? "home" : this.open.channel);
    const mentions = [...this.store.channels.values()].reduce((sum, channel) => sum + (channel.mentions ?? 0), 0);
    const where = this.open.home ? "Home" : this.open.channel && this.store.channel(this.open.channel);
    document.title = `${mentions ? `(${mentions}) ` : ""}${where ? `${where} · ` : ""}${this.store.team.name}`;
  }

  /** Close the current channel at once, so that nothing typed before the next one is shown goes to the old one. */
  leave() {
    if (this.open.channel && this.composer) this.drafts.set(`${this.store.me} ${this.open.channel}`, this.composer.text);
    if (this.pane.thread || this.pane.covers) this.pane.close();
    this.open.list?.end();
    this.open = { channel: null, list: null, home: false };
    this.composer = null;
    main.replaceChildren(this.top.node);
  }

  async openChannel(id) {
    const channel = this.store.channels.get(id);
    if (!channel) return toast("You are not in that channel.");
    this.drawer(false);
    if (this.pane.covers) this.pane.close();
    if (id === this.open.channel && !this.open.home && this.open.list) return byId("box")?.focus();
    this.leave();
    this.open.channel = id;
    const asked = new URLSearchParams(location.search).get("ts"); // from a permalink; used once
    history.replaceState(null, "", `/#/${this.store.me}/${id}`);
    this.composer = this.makeComposer(channel, null);
    const list = (this.open.list = new MessageList(this.surface(id, null)));
    main.replaceChildren(this.top.node, list.node, this.composer.node);
    list.intro.replaceChildren(...this.introOf(channel));
    this.drawTop();
    const draft = this.drafts.get(`${this.store.me} ${id}`);
    if (draft) this.composer.set(draft, false);
    this.drawSidebar();
    if (!asked) this.offerBox(); // at once: later it would steal the focus
    await this.loadMessages(channel.unread);
    this.markRead();
    if (asked && list === this.open.list && !list.reveal(asked)) this.offerBox();
    return null;
  }

  introOf(channel) {
    if (channel.is_im) return [h("p", null, "This conversation is between you and ", h("b", null, this.store.title(channel)), ".")];
    return [h("h2", null, icon(channel.is_private ? "lock" : "hash"), channel.name), h("p", null, `This is the very beginning of ${channel.is_private ? "the private channel" : "the channel"} `, h("b", null, `#${channel.name}`), ".")];
  }

  loadMessages(unread = 0) {
    const { channel, list } = this.open;
    return this.holding(async () => {
      const { messages } = await read("/page/messages", { user: this.store.me, channel });
      if (list === this.open.list) list.load(messages, unread);
      this.tick(messages); // of what came while another person's page was shown
    });
  }

  markRead() {
    const channel = this.store.channels.get(this.open.channel);
    if (!channel || document.visibilityState !== "visible") return;
    channel.unread = channel.mentions = 0;
    this.drawSidebar();
    send("/page/read", { user: this.store.me, channel: channel.id }).catch(() => null); // a failed read mark is not worth an error
  }

  surface(channel, thread) {
    return {
      store: this.store, wire: this.wire, channel, thread,
      openThread: (ts) => this.pane.openThread(ts),
      shortcut: (callbackId, message) => this.shortcut({ callback_id: callbackId, channel, ts: message.ts }),
    };
  }

  async shortcut(given) {
    try {
      const answer = await send("/page/shortcut", { user: this.store.me, ...given });
      if (answer.ok === false && answer.text) this.notice(this.open.channel, answer.text);
    } catch (error) {
      toast(error.message);
    }
  }

  makeComposer(channel, thread) {
    const user = () => this.store.me;
    const name = channel.is_im ? this.store.title(channel) : `#${channel.name}`;
    return new Composer({
      store: this.store,
      thread,
      label: thread ? "Reply…" : `Message ${name}`,
      onSay: (text) => send("/page/say", { user: user(), channel: channel.id, text, ...(thread ? { thread_ts: thread } : {}) }),
      onCommand: (text) => (thread ? this.noCommandInThread(text) : this.command(channel.id, text)),
      onUpload: (file) => this.upload(channel.id, file),
      onShortcut: (callbackId) => this.shortcut({ callback_id: callbackId }),
      onUp: () => this.open.list.focusLast(),
    });
  }

  async command(channel, text) {
    const answer = await send("/page/command", { user: this.store.me, channel, text });
    if (answer.ok === false && answer.text) this.notice(channel, answer.text);
  }

  noCommandInThread(text) {
    const list = this.pane.thread.list;
    list.put({ ts: (Date.now() / 1000).toFixed(6), text: `${text.split(/\s/)[0]} is not supported in threads. Sorry!`, ephemeral: true, local: true });
  }

  upload(channel, file) {
    const form = this.fileForm(file);
    form.set("channel", channel);
    return send("/page/upload", form);
  }

  fileForm(file) {
    const form = new FormData();
    form.set("user", this.store.me);
    form.set("file", file, file.name);
    return form;
  }

  async openPerson(user) {
    const talk = [...this.store.channels.values()].find((channel) => channel.is_im && this.store.partner(channel) === user);
    if (talk) return this.openChannel(talk.id);
    const [me, before] = [this.store.me, this.open.channel];
    this.leave();
    const coming = (this.open.coming = user); // do not navigate if the user opened something else meanwhile
    try {
      const { channel } = await send("/page/dm", { user: this.store.me, with: user });
      if (me !== this.store.me) return null;
      this.store.channels.set(channel.id, channel);
      return this.open.coming === coming ? this.openChannel(channel.id) : null;
    } catch (error) {
      toast(error.message);
      return this.open.coming === coming && before ? this.openChannel(before) : null;
    }
  }

  openApp() {
    return this.store.bot() && this.store.hasHome ? this.openHome() : this.openPerson(this.store.bot().id);
  }

  openHome() {
    this.drawer(false);
    this.leave();
    this.open.home = true;
    history.replaceState(null, "", `/#/${this.store.me}/home`);
    main.replaceChildren(this.top.node, this.home.node);
    this.drawTop();
    this.drawSidebar();
    this.home.draw(true);
    send("/page/home", { user: this.store.me }).then(() => setTimeout(() => this.home.draw(), 4000), (error) => { this.home.draw(); toast(error.message); });
  }

  drawTop() {
    this.top.draw({
      channel: this.store.channels.get(this.open.channel), atHome: this.open.home, hasHome: this.store.hasHome,
      pointersOpen: this.pane.showsPointers, phoneOpen: this.pane.showsPhone, developerOpen: !byId("developer").hidden,
    });
  }

  /** Do what a pointer says: act as its person, open its channel, the App Home or the phone, and fill the message box without sending. */
  async takePointer(pointer) {
    if (pointer.user && pointer.user !== this.store.me && this.store.users.has(pointer.user)) {
      this.afterSwitch = pointer;
      return this.actAs(pointer.user, pointer.channel);
    }
    if (!pointer.done && this.store.tickOff([pointer]) && this.pane.showsPointers) this.pane.showPointers();
    if (pointer.phone) return this.pane.openPhone();
    if (pointer.starts) send("/page/pointer", { title: pointer.title }).catch((error) => toast(error.message));
    if (pointer.home) return this.openHome();
    const opened = pointer.channel ? this.openChannel(pointer.channel) : this.open.home ? this.openChannel([...this.store.channels.keys()][0]) : null;
    const text = pointer.insert ?? (pointer.text?.startsWith("/") ? pointer.text : "");
    if (text) this.composer?.set(text);
    this.composer?.hide();
    this.focusBox();
    await opened;
    if (pointer.starts) this.open.list?.toEnd(); // where it is going to be shown
    if (pointer.shows) this.open.list?.revealCard(pointer.shows);
    if (text) this.focusBox(); // also where a card got the focus
    return null;
  }

  // helpers

  focusBox() {
    byId("box")?.focus({ preventScroll: true });
  }

  /** Focus the message box on devices with a keyboard, unless a popup or modal has the focus. */
  offerBox() {
    if (innerWidth > 700 && !byId("modal").open && !popupIsOpen()) this.focusBox();
  }

  drawer(open) {
    app.classList.toggle("drawer", open);
    if (open) byId("sidebar").querySelector(".channel-row.current, .channel-row")?.focus();
  }

  toggleDeveloper(on = byId("developer").hidden) {
    byId("developer").hidden = !on;
    localStorage.setItem("workspace.developer", on ? "open" : "closed");
    if (on) this.developer.draw();
    this.drawTop();
  }

  onKey(event) {
    if (event.defaultPrevented || byId("modal").open || document.querySelector("dialog[open]")) return;
    const typing = event.target.matches?.("input, textarea, select, [contenteditable]");
    if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      this.step(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && this.composer) {
      event.preventDefault();
      this.composer.set(this.composer.text || "/");
    } else if (event.key === "Escape") this.escape();
  }

  step(by) {
    const rows = this.sidebar.order();
    const at = rows.findIndex((row) => row.classList.contains("current"));
    rows[(at + by + rows.length) % rows.length]?.click();
  }

  escape() {
    closePopup();
    if (app.classList.contains("drawer")) this.drawer(false);
    else if (this.pane.thread || this.pane.covers) this.pane.close(true);
    else if (document.activeElement !== byId("box")) byId("box")?.focus();
  }
}

const inChannel = (message) => !message.thread_ts || message.thread_ts === message.ts || message.subtype === "thread_broadcast";

const page = new Page();
page.start().catch((error) => {
  main.replaceChildren(h("div", { class: "rejected", role: "alert" }, h("h1", null, "The emulator rejected this page"), h("p", null, error.message)));
});
