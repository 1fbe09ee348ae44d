// The modal stack and the Home tab.

import { h, icon, iconButton } from "./dom.js";
import { patchBlocks } from "./blocks.js";
import { collect, complaint } from "./elements.js";
import { words } from "./mrkdwn.js";
import { closePopup, popupIsOpen, toast } from "./popups.js";
import { Entered } from "./store.js";

/** The blocks of one view and the values entered in them. */
class Sheet {
  constructor(view, store, wire) {
    this.view = view;
    this.errors = new Map();
    this.body = h("div", { class: "blocks" });
    this.container = {
      names: store,
      entered: new Entered(),
      channel: null,
      act: (block, element, value) => wire.act({ view_id: this.view.id }, block, element, value, this.view.blocks, this.container),
      options: (block, element, query) => wire.options({ view_id: this.view.id }, block, element, query),
      upload: (file) => wire.upload(file),
      touched: (blockId) => this.setError(blockId, null),
    };
  }

  draw(view) {
    this.view = view;
    patchBlocks(this.body, view.blocks ?? [], this.container);
    this.showErrors(view.errors ?? {});
  }

  showErrors(errors) {
    this.errors = new Map(Object.entries(errors));
    for (const node of this.body.querySelectorAll(".block-input")) this.showError(node);
  }

  setError(blockId, text) {
    if (text) this.errors.set(blockId, text);
    else this.errors.delete(blockId);
    const node = this.body.querySelector(`.block-input[data-block="${CSS.escape(blockId)}"]`);
    if (node) this.showError(node);
  }

  showError(node) {
    const text = this.errors.get(node.dataset.block);
    const line = node.querySelector(".field-error");
    if (line.textContent !== (text ?? "")) line.replaceChildren(...(text ? [icon("warning"), text] : []));
    node.classList.toggle("wrong", Boolean(text));
    const control = node.querySelector("input, textarea, .select-box");
    if (text) control?.setAttribute("aria-invalid", "true");
    else control?.removeAttribute("aria-invalid");
  }

  focusFirstError() {
    this.body.querySelector(".wrong :is(input, textarea, button)")?.focus();
    this.body.querySelector(".wrong .field-error")?.scrollIntoView({ block: "nearest" });
  }

  /** Validate the fields as Slack does; true if the form can be submitted. */
  complete() {
    const found = {};
    for (const block of this.view.blocks ?? []) {
      const text = block.type === "input" ? complaint(block, this.container) : null;
      if (text) found[block.block_id] = text;
    }
    this.showErrors(found);
    if (Object.keys(found).length) this.focusFirstError();
    return !Object.keys(found).length;
  }
}

export class Modals {
  constructor(dialog, store, wire) {
    Object.assign(this, { dialog, store, wire });
    this.sheets = new Map();
    dialog.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      event.preventDefault();
      event.stopPropagation();
      if (popupIsOpen()) closePopup();
      else this.closeTop();
    });
    dialog.addEventListener("cancel", (event) => { event.preventDefault(); this.closeTop(); });
  }

  /** Update the dialog to the store's stack of views. */
  draw() {
    const stack = this.store.stack();
    const known = new Set(stack.map((view) => view.id));
    for (const [id, sheet] of this.sheets) {
      if (known.has(id)) continue;
      sheet.form.remove();
      this.sheets.delete(id);
    }
    stack.forEach((view, depth) => this.drawSheet(view, depth === stack.length - 1, depth));
    if (stack.length && !this.dialog.open) this.open();
    if (!stack.length && this.dialog.open) this.close();
    const top = this.sheets.get(stack.at(-1)?.id);
    const isNew = top?.view.id !== this.topId; // opening a dialog focuses its first button; focus the first field instead
    this.topId = top?.view.id;
    if (top && (isNew || !top.form.contains(document.activeElement))) this.focusIn(top);
  }

  open() {
    closePopup(false);
    this.from = document.activeElement;
    this.dialog.showModal();
  }

  close() {
    closePopup(false);
    this.dialog.close();
    const back = this.from?.isConnected && this.from !== document.body ? this.from : document.getElementById("box");
    back?.focus({ preventScroll: true });
  }

  focusIn(sheet) {
    const first = sheet.form.querySelector("[autofocus]") ?? sheet.body.querySelector("input, textarea, .select-box, button") ?? sheet.form.querySelector(".sheet-foot button");
    first?.focus({ preventScroll: true });
  }

  drawSheet(view, isTop, depth) {
    let sheet = this.sheets.get(view.id);
    if (!sheet) {
      sheet = this.makeSheet(view);
      this.sheets.set(view.id, sheet);
      this.dialog.append(sheet.form);
    }
    const drawn = JSON.stringify(view);
    if (sheet.drawn !== drawn) {
      sheet.drawn = drawn;
      const title = words(view.title) || "Form";
      sheet.title.textContent = title;
      sheet.back.hidden = depth === 0;
      sheet.submit.hidden = !view.submit;
      sheet.submit.lastChild.textContent = words(view.submit) || "Submit";
      sheet.cancel.textContent = words(view.close) || (view.submit ? "Cancel" : "Close");
      sheet.draw(view);
      if (view.errors && Object.keys(view.errors).length && isTop) sheet.focusFirstError();
    }
    this.setBusy(sheet, Boolean(view.busy || sheet.waiting));
    sheet.form.hidden = !isTop;
    if (isTop) this.dialog.setAttribute("aria-label", sheet.title.textContent);
  }

  makeSheet(view) {
    const sheet = new Sheet(view, this.store, this.wire);
    sheet.title = h("h2");
    sheet.back = iconButton("back", "Back", () => this.closeView(sheet));
    sheet.cancel = h("button", { type: "button", class: "button", onclick: () => this.closeView(sheet) });
    sheet.submit = h("button", { type: "submit", class: "button primary" }, h("span", { class: "spinner", "aria-hidden": "true" }), h("span"));
    sheet.form = h("form", { class: "sheet", novalidate: true, onsubmit: (event) => { event.preventDefault(); this.submit(sheet); } },
      h("header", { class: "sheet-top" }, sheet.back, sheet.title, iconButton("close", "Close", () => this.closeView(sheet))),
      h("div", { class: "sheet-body" }, sheet.body),
      h("footer", { class: "sheet-foot" }, sheet.cancel, sheet.submit));
    return sheet;
  }

  setBusy(sheet, busy) {
    sheet.form.classList.toggle("busy", busy);
    sheet.form.setAttribute("aria-busy", String(busy));
    sheet.submit.setAttribute("aria-disabled", String(busy));
  }

  async submit(sheet) {
    if (sheet.waiting || !sheet.view.submit || !sheet.complete()) return;
    sheet.waiting = true;
    this.setBusy(sheet, true);
    try {
      const before = sheet.view;
      const answer = await this.wire.submit(before.id, collect(before.blocks.filter(isInput), sheet.container));
      if (answer.errors && sheet.view === before) { // otherwise the live event has shown them
        sheet.showErrors(answer.errors);
        sheet.focusFirstError();
      }
    } catch (error) {
      toast(error.message);
    } finally {
      sheet.waiting = false;
      this.setBusy(sheet, Boolean(this.store.views.get(sheet.view.id)?.busy));
    }
  }

  closeTop() {
    const top = this.sheets.get(this.store.stack().at(-1)?.id);
    if (top) this.closeView(top);
    else if (this.dialog.open) this.dialog.close();
  }

  closeView(sheet) {
    this.store.views.delete(sheet.view.id); // hide it at once; the server's event confirms it
    this.draw();
    this.wire.closeView(sheet.view.id).catch((error) => toast(error.message));
  }
}

const isInput = (block) => block.type === "input";

export class Home {
  constructor(store, wire) {
    this.store = store;
    this.sheet = new Sheet({ id: "", blocks: [] }, store, wire);
    this.waiting = h("div", { class: "skeleton", "aria-label": "The app is filling its Home" }, ...[70, 45, 90, 60].map((width) => h("span", { class: `bar w${width}` })));
    this.empty = h("p", { class: "quiet" }, "This app has not shown anything on its Home yet.");
    this.node = h("div", { class: "scroller home" }, h("div", { class: "home-page" }, this.waiting, this.empty, this.sheet.body));
  }

  draw(opening = false) {
    const view = this.store.home;
    this.waiting.hidden = Boolean(view) || !opening;
    this.empty.hidden = Boolean(view) || opening;
    this.sheet.body.hidden = !view;
    if (view) this.sheet.draw(view);
  }
}
