// Popups: menus, searchable pickers, the confirm dialog. One at a time; Escape closes it.

import { announce, h, icon } from "./dom.js";

let open = null;

export const popupIsOpen = () => open !== null;

export function closePopup(giveFocusBack = true) {
  const popup = open;
  if (!popup) return;
  open = null;
  popup.node.remove();
  popup.anchor.setAttribute("aria-expanded", "false");
  if (giveFocusBack) focusAgain(popup.anchor);
  popup.onClose?.();
}

function focusAgain(anchor) {
  if (anchor.isConnected) return anchor.focus({ preventScroll: true });
  const key = anchor.closest("[data-focus]")?.dataset.focus;
  const again = key && document.querySelector(`[data-focus="${CSS.escape(key)}"]`);
  (again?.querySelector?.("button, input") ?? again)?.focus?.();
}

/** Show `node` next to `anchor` inside the window, and reposition it when it grows or its anchor moves. */
function show(anchor, node, onClose) {
  closePopup(false);
  const layer = anchor.closest("dialog[open]") ?? document.body;
  layer.append(node);
  const again = () => { if (anchor.isConnected) place(anchor, node); };
  const sizes = new ResizeObserver(again);
  sizes.observe(node);
  const moved = new AbortController();
  window.addEventListener("resize", again, { signal: moved.signal });
  window.visualViewport?.addEventListener("resize", again, { signal: moved.signal }); // a phone's keyboard
  document.addEventListener("scroll", ({ target }) => { if (!node.contains(target)) again(); }, { capture: true, signal: moved.signal });
  place(anchor, node);
  anchor.setAttribute("aria-expanded", "true");
  open = { anchor, node, onClose: () => { sizes.disconnect(); moved.abort(); onClose?.(); } };
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && event.key !== "Tab") return;
    if (event.key === "Escape") event.preventDefault();
    event.stopPropagation();
    closePopup();
  });
  return open;
}

const GAP = 6;
const HIGHEST_PX = 380;

/** Position below the anchor if it fits, else on the side with more room, always inside the window. */
function place(anchor, node) {
  const by = anchor.getBoundingClientRect();
  const bottom = window.visualViewport ? Math.min(innerHeight, visualViewport.height + visualViewport.offsetTop) : innerHeight;
  const picker = node.classList.contains("picker");
  if (picker) node.style.minWidth = `${Math.min(Math.max(by.width, 260), innerWidth - 2 * GAP)}px`;
  node.style.maxHeight = `${HIGHEST_PX}px`;
  node.style.left = "0px"; // measure its natural width
  const { width, height } = node.getBoundingClientRect();
  const below = bottom - by.bottom - 2 * GAP;
  const above = by.top - 2 * GAP;
  const wanted = picker ? HIGHEST_PX : height; // a picker's final height is unknown, and its side must not change while typing
  const under = below >= wanted || below >= above;
  const room = Math.max(120, Math.min(HIGHEST_PX, under ? below : above));
  const high = Math.min(height, room);
  const top = under ? by.bottom + GAP : by.top - GAP - high;
  const left = node.classList.contains("to-right") ? by.right - width : by.left;
  node.style.maxHeight = `${room}px`;
  node.style.top = `${Math.max(GAP, Math.min(top, bottom - high - GAP))}px`;
  node.style.left = `${Math.max(GAP, Math.min(left, innerWidth - width - GAP))}px`;
}

document.addEventListener("pointerdown", (event) => {
  if (!open || open.node.contains(event.target)) return;
  const onAnchor = open.anchor.contains(event.target);
  closePopup(onAnchor);
  if (onAnchor) {
    // the click on the anchor that follows must not reopen it
    event.target.closest("button")?.addEventListener("click", (click) => click.stopImmediatePropagation(), { capture: true, once: true });
  }
}, true);

/** A menu of `{label, description?, onPick, danger?, checked?, icon?}` or `{heading}`; arrows, Home, End, letters. */
export function openMenu(anchor, items, { label = "Menu", toRight = false } = {}) {
  const rows = items.map((item) => (item.heading ? h("div", { class: "menu-heading", role: "presentation" }, item.heading) : menuRow(item)));
  const node = h("div", { class: `popup menu${toRight ? " to-right" : ""}`, role: "menu", "aria-label": label }, ...rows);
  anchor.setAttribute("aria-haspopup", "menu");
  show(anchor, node);
  const choices = [...node.querySelectorAll("[role^=menuitem]")];
  node.addEventListener("keydown", (event) => moveFocus(event, choices));
  (choices.find((row) => row.getAttribute("aria-checked") === "true") ?? choices[0])?.focus();
}

function menuRow(item) {
  const radio = item.checked !== undefined;
  return h(
    "button",
    {
      type: "button",
      class: `menu-item${item.danger ? " danger" : ""}`,
      role: radio ? "menuitemradio" : "menuitem",
      "aria-checked": radio ? String(item.checked) : null,
      tabindex: "-1",
      onclick: () => {
        closePopup();
        item.onPick();
      },
    },
    item.icon ?? null,
    h("span", { class: "menu-words" }, h("span", null, item.label), item.description ? h("small", null, item.description) : null),
    item.checked ? icon("check") : null,
  );
}

export function moveFocus(event, choices) {
  const at = choices.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: choices.length - 1 }[event.key];
  let next = to === undefined ? null : choices[(to + choices.length) % choices.length];
  if (!next && event.key.length === 1 && /\S/.test(event.key) && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const letter = event.key.toLowerCase();
    next = [...choices.slice(at + 1), ...choices].find((row) => row.textContent.trim().toLowerCase().startsWith(letter));
  }
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  next.focus();
}

let serial = 0;
const TYPING_PAUSE_MS = 180;

/**
 * A searchable picker. `load(query)` returns, or resolves to, groups `[{label, options: [{key, label, nodes?, description?, value}]}]`.
 * `chosen` is a set of keys; with `multi` it stays open and calls `onToggle(option, on)`, else `onPick(option)`.
 */
export function openPicker(anchor, { label, placeholder = "Search", load, chosen = new Set(), multi = false, minimum = 0, onPick, onToggle, onClose }) {
  const id = `list-${(serial += 1)}`;
  const list = h("div", { class: "picker-list", role: "listbox", id, "aria-label": label, "aria-multiselectable": multi ? "true" : null });
  const box = h("input", {
    class: "picker-box", type: "text", role: "combobox", placeholder, autocomplete: "off", spellcheck: "false",
    "aria-label": label, "aria-controls": id, "aria-expanded": "true", "aria-autocomplete": "list",
  });
  const node = h("div", { class: "popup picker" }, h("div", { class: "picker-top" }, box), list);
  list.addEventListener("mousedown", (event) => event.preventDefault()); // keep the focus in the search box
  anchor.setAttribute("aria-haspopup", "listbox");
  const popup = show(anchor, node, onClose);
  let turn = 0;
  let at = -1;
  let rows = [];
  let found = null; // the query of the rows shown
  let sought = null; // the query last sent
  let early = false; // Enter was pressed before the results of the query arrived

  const mark = (to) => {
    rows[at]?.node.classList.remove("at");
    at = rows.length ? (to + rows.length) % rows.length : -1;
    rows[at]?.node.classList.add("at");
    rows[at]?.node.scrollIntoView({ block: "nearest" });
    if (at >= 0) box.setAttribute("aria-activedescendant", rows[at].node.id);
    else box.removeAttribute("aria-activedescendant");
  };

  const pick = (row) => {
    if (!multi) {
      closePopup();
      onPick(row.option);
      return;
    }
    const on = !chosen.has(row.option.key);
    if (onToggle(row.option, on) === false) return;
    if (on) chosen.add(row.option.key);
    else chosen.delete(row.option.key);
    row.node.setAttribute("aria-selected", String(on));
  };

  const draw = (groups) => {
    rows = [];
    list.replaceChildren();
    for (const group of groups) {
      const inner = group.options.map((option) => {
        const row = { option, node: optionRow(option, `${id}-${rows.length}`, chosen.has(option.key)) };
        row.node.addEventListener("click", () => pick(row));
        row.node.addEventListener("pointermove", () => { if (rows[at] !== row) mark(rows.indexOf(row)); });
        rows.push(row);
        return row.node;
      });
      if (!inner.length) continue;
      if (group.label) list.append(h("div", { role: "group", "aria-label": group.label }, h("div", { class: "menu-heading" }, group.label), ...inner));
      else list.append(...inner);
    }
    if (!rows.length) list.append(note("No results"));
    mark(Math.max(0, rows.findIndex((row) => chosen.has(row.option.key))));
    announce(rows.length ? `${rows.length} choices` : "No results");
  };

  const refresh = async () => {
    const query = box.value.trim();
    const mine = (turn += 1);
    sought = query;
    if (query.length < minimum) {
      rows = [];
      found = query;
      mark(0);
      list.replaceChildren(note(minimum === 1 ? "Type to search" : `Type at least ${minimum} characters to search`));
      return;
    }
    try {
      const answer = load(query);
      if (answer instanceof Promise) list.setAttribute("aria-busy", "true");
      if (answer instanceof Promise && !rows.length) list.replaceChildren(note("Loading…"));
      const groups = await answer;
      if (mine !== turn || open !== popup) return;
      found = query;
      draw(groups);
      if (early && rows[at]) pick(rows[at]);
      early = false;
    } catch (error) {
      if (mine !== turn) return;
      found = sought = null;
      early = false;
      list.replaceChildren(note(error.message || "These could not be loaded."));
    } finally {
      if (mine === turn) list.removeAttribute("aria-busy");
    }
  };

  let timer = null;
  /** Enter selects a result of the current query, never one of an older query. */
  const enter = () => {
    const query = box.value.trim();
    if (found === query) return rows[at] && pick(rows[at]);
    early = true;
    clearTimeout(timer);
    return sought === query ? null : refresh();
  };
  box.addEventListener("input", () => {
    early = false;
    clearTimeout(timer);
    timer = setTimeout(refresh, TYPING_PAUSE_MS);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      event.stopPropagation();
      mark(at + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      event.stopPropagation();
      enter();
    }
  });
  box.focus();
  refresh();
}

const note = (text) => h("div", { class: "picker-note" }, text);

function optionRow(option, id, on) {
  return h(
    "div",
    { class: "option", role: "option", id, "aria-selected": String(on), data: { key: option.key } },
    h("span", { class: "menu-words" }, h("span", null, ...(option.nodes ?? [option.label])), option.description ? h("small", null, option.description) : null),
    icon("check"),
  );
}

/** Show Slack's confirm object as a dialog; resolves to true if confirmed. */
export function confirmDialog({ title, body, yes, no, danger }) {
  return new Promise((resolve) => {
    const from = document.activeElement;
    const end = (agreed) => {
      dialog.remove();
      if (from?.isConnected) from.focus({ preventScroll: true });
      resolve(agreed);
    };
    const dialog = h(
      "dialog",
      { class: "modal confirm", "aria-label": title },
      h("div", { class: "sheet" },
        h("header", { class: "sheet-top" }, h("h2", null, title)),
        h("div", { class: "sheet-body" }, ...body),
        h("footer", { class: "sheet-foot" },
          h("button", { type: "button", class: "button", onclick: () => end(false) }, no),
          h("button", { type: "button", class: `button ${danger ? "danger" : "primary"}`, autofocus: true, onclick: () => end(true) }, yes))),
    );
    dialog.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      end(false);
    });
    dialog.addEventListener("cancel", (event) => { event.preventDefault(); end(false); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A short notice at the bottom of the page that disappears by itself. */
export function toast(text) {
  const node = h("div", { class: "toast", role: "alert" }, text);
  const layer = document.querySelector("dialog[open]") ?? document.body;
  layer.append(node);
  setTimeout(() => node.remove(), 5000);
}
