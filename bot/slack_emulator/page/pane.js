// The right pane: a thread, the list of things to try, or what the phone showed.

import { read } from "./api.js";
import { h, icon, iconButton } from "./dom.js";
import { MessageList } from "./messages.js";
import { mrkdwn } from "./mrkdwn.js";

const WIDE_PX = 1000; // below this width the pane covers the channel (page.css)
const CLOSED = "workspace.try";

/** `page` gives store, drafts, open.channel, surface(), makeComposer(), holding(), drawTop(), focusBox(), takePointer(). */
export class Pane {
  constructor(node, page) {
    Object.assign(this, { node, page });
    this.thread = null; // {ts, list, composer}
    this.showsPointers = false;
    this.showsPhone = false;
    this.pointersBefore = false;
  }

  get draftKey() {
    return `${this.page.store.me} ${this.page.open.channel} ${this.thread.ts}`;
  }

  /** Whether the pane covers the channel. */
  get covers() {
    return !this.node.hidden && innerWidth <= WIDE_PX;
  }

  async openThread(ts) {
    const { page } = this;
    const { channel } = page.open;
    if (this.thread?.ts === ts) return this.focusThread();
    this.keepDraft();
    this.thread?.list.end();
    this.pointersBefore ||= this.showsPointers;
    this.showsPointers = false;
    this.showsPhone = false;
    const list = new MessageList(page.surface(channel, ts));
    const composer = page.makeComposer(page.store.channels.get(channel), ts);
    this.thread = { ts, list, composer };
    this.show("Thread", page.store.channel(channel), list.node, composer.node);
    page.drawTop();
    const draft = page.drafts.get(this.draftKey);
    if (draft) composer.set(draft, false);
    this.focusThread();
    return this.loadThread();
  }

  focusThread() {
    document.getElementById("thread-box")?.focus({ preventScroll: true });
  }

  loadThread() {
    const { thread, page } = this;
    return page.holding(async () => {
      const { messages } = await read("/page/thread", { user: page.store.me, channel: page.open.channel, ts: thread.ts });
      if (thread === this.thread) thread.list.load(messages);
    });
  }

  show(title, under, ...inner) {
    this.node.hidden = false;
    this.node.setAttribute("aria-label", title);
    this.node.replaceChildren(
      h("header", { class: "top" }, h("h2", null, title), h("span", { class: "members" }, under),
        h("div", { class: "top-tools" }, iconButton("close", `Close: ${title}`, () => this.close(true)))),
      ...inner);
  }

  keepDraft() {
    if (this.thread) this.page.drafts.set(this.draftKey, this.thread.composer.text);
  }

  close(byHand = false) {
    this.keepDraft();
    const hidPointers = this.thread || this.showsPhone;
    this.thread?.list.end();
    this.thread = null;
    if (byHand && this.showsPointers) localStorage.setItem(CLOSED, "closed");
    this.showsPointers = false;
    this.showsPhone = false;
    this.node.hidden = true;
    this.node.replaceChildren();
    if (hidPointers && this.pointersBefore) {
      this.pointersBefore = false;
      if (innerWidth > WIDE_PX) this.showPointers();
    }
    this.page.drawTop();
    if (byHand) this.page.focusBox();
  }

  // things to try

  offerPointers() {
    if (this.page.store.pointers.length && localStorage.getItem(CLOSED) !== "closed" && innerWidth > WIDE_PX) this.showPointers();
  }

  togglePointers() {
    if (this.showsPointers) return this.close(true);
    localStorage.removeItem(CLOSED);
    this.close();
    return this.showPointers();
  }

  // what the phone showed

  togglePhone() {
    return this.showsPhone ? this.close(true) : this.openPhone();
  }

  openPhone() {
    const pointersBefore = this.pointersBefore || this.showsPointers;
    this.pointersBefore = false; // else closing a thread shows them
    this.close();
    this.pointersBefore = pointersBefore;
    return this.drawPhone();
  }

  drawPhone() {
    this.showsPhone = true;
    const { store } = this.page;
    const items = store.notifications.map(({ channel, text }) => h("li", null, h("div", { class: "pointer" }, h("b", null, store.channel(channel)), h("span", null, ...mrkdwn(text, store)))));
    const none = h("p", { class: "quiet" }, "Nothing yet. Direct messages and mentions notify.");
    const back = store.pointers.length ? h("button", { type: "button", class: "quiet-link back", onclick: () => this.togglePointers() }, "Back to things to try") : "";
    this.show("What phones showed", store.user(store.me), back, items.length ? h("ol", { class: "pointers phone" }, ...items.reverse()) : none);
    this.page.drawTop();
  }

  showPointers() {
    this.showsPointers = true;
    this.showsPhone = false;
    this.show("Things to try", "", h("ol", { class: "pointers" }, ...this.page.store.pointers.map((pointer) => this.pointerNode(pointer))));
    this.node.querySelector(".pointer:not(.done)")?.scrollIntoView({ block: "center" });
    this.page.drawTop();
  }

  pointerNode(pointer) {
    const text = pointer.text ?? "";
    const isShown = pointer.insert && text.includes(pointer.insert.replace(/[\s~]+$/, "")); // the text shows the command already
    const done = this.page.store.done.has(pointer.title);
    return h("li", null, h("button", { type: "button", class: `pointer${done ? " done" : ""}`, onclick: () => this.take(pointer) },
      h("b", null, pointer.title, done ? icon("check") : null, done ? h("span", { class: "visually-hidden" }, "done") : null), h("span", null, ...mrkdwn(text, this.page.store)), pointer.insert && !isShown ? h("code", null, pointer.insert) : null));
  }

  take(pointer) {
    if (innerWidth <= WIDE_PX) this.close();
    return this.page.takePointer(pointer);
  }
}
