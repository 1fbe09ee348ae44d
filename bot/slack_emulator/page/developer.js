// The developer panel: payloads to and from the app, newest first.

import { h, icon, iconButton } from "./dom.js";

const KEPT = 400;
const SHORT_LIST = 40;

export class Developer {
  constructor(node, onClose) {
    this.node = node;
    this.entries = [];
    this.direction = "both";
    this.box = h("input", { class: "field-box", type: "search", placeholder: "Filter: name, id, any text", "aria-label": "Filter payloads", oninput: () => this.draw() });
    this.count = h("span", { class: "faint" });
    this.list = h("div", { class: "payloads", role: "list", "aria-label": "Payloads, newest first" });
    this.ways = h("div", { class: "segments", role: "group", "aria-label": "Direction" }, ...[["both", "Both"], ["to_app", "To app"], ["from_app", "From app"]].map(([way, label]) =>
      h("button", { type: "button", "aria-pressed": String(way === "both"), data: { way }, onclick: () => this.setWay(way) }, label)));
    node.replaceChildren(
      h("header", { class: "developer-top" }, h("h2", null, "Payloads"), this.ways, this.box, this.count,
        iconButton("trash", "Clear", () => { this.entries = []; this.draw(); }), iconButton("close", "Close the developer panel", onClose)),
      this.list);
    this.draw();
  }

  setWay(way) {
    this.direction = way;
    for (const button of this.ways.children) button.setAttribute("aria-pressed", String(button.dataset.way === way));
    this.draw();
  }

  add(event) {
    const entry = { ...event, at: new Date(), text: JSON.stringify([event.what, event.status, event.body]).toLowerCase(), node: null };
    this.entries.unshift(entry);
    this.entries.splice(KEPT);
    if (this.node.hidden) return;
    while (this.list.childElementCount >= KEPT) this.list.lastChild.remove();
    if (this.fits(entry)) this.list.prepend(this.row(entry));
    this.list.querySelector(".quiet")?.remove();
    this.tell();
  }

  fits(entry) {
    const wanted = this.box.value.trim().toLowerCase();
    return (this.direction === "both" || entry.direction === this.direction) && (!wanted || entry.text.includes(wanted));
  }

  draw() {
    const shown = this.entries.filter((entry) => this.fits(entry));
    this.list.replaceChildren(...(shown.length ? shown.map((entry) => this.row(entry)) : [h("p", { class: "quiet" }, this.entries.length ? "Nothing matches the filter." : "Nothing yet. Send a command or click a button, and see here what goes to the app and what it answers.")]));
    this.tell();
  }

  tell() {
    this.count.textContent = this.entries.length ? `${this.entries.length}${this.entries.length === KEPT ? " (the newest)" : ""}` : "";
  }

  row(entry) {
    if (entry.node) return entry.node;
    const out = entry.direction === "to_app";
    const bad = entry.status !== undefined && entry.status !== null && !/^(2\d\d|ok|200)$/i.test(String(entry.status));
    const inner = h("div", { class: "payload-body" });
    entry.node = h("details", { class: `payload ${out ? "to" : "from"}`, role: "listitem", ontoggle: () => { if (entry.node.open && !inner.firstChild) inner.append(tree(entry.body, 0)); } },
      h("summary", null,
        h("span", { class: "way", title: out ? "To the app" : "From the app" }, out ? "→ app" : "← app"),
        h("b", null, entry.what ?? "?"), h("span", { class: "payload-gist" }, gist(entry.body)),
        entry.status === undefined || entry.status === null ? null : h("span", { class: bad ? "status bad" : "status" }, String(entry.status)),
        h("time", null, entry.at.toLocaleTimeString(undefined, { hour12: false }))),
      inner);
    return entry.node;
  }
}

const TELLING = ["command", "text", "action_id", "callback_id", "type", "error", "channel", "view_id", "ok"];

function gist(body) {
  if (!body || typeof body !== "object") return String(body ?? "");
  const found = TELLING.filter((key) => ["string", "boolean", "number"].includes(typeof body[key]) && body[key] !== "").slice(0, 3);
  return found.map((key) => `${key}=${String(body[key]).slice(0, 60)}`).join("  ");
}

/** JSON as collapsible nodes; long lists are rendered when opened. */
function tree(value, depth, key = null) {
  const label = key === null ? null : h("span", { class: "json-key" }, `${key}: `);
  if (value === null || typeof value !== "object") return h("div", { class: "json-leaf" }, label, leaf(value));
  const entries = Object.entries(value);
  const [left, right] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!entries.length) return h("div", { class: "json-leaf" }, label, left + right);
  const inner = h("div", { class: "json-inner" });
  const fill = () => { if (!inner.firstChild) inner.append(...entries.map(([name, item]) => tree(item, depth + 1, name))); };
  const node = h("details", { class: "json", open: depth < 2 && entries.length <= SHORT_LIST, ontoggle: () => { if (node.open) fill(); } },
    h("summary", null, icon("right"), label, `${left} `, h("span", { class: "faint" }, `${entries.length}`), ` ${right}`), inner);
  if (node.open) fill();
  return node;
}

function leaf(value) {
  const kind = value === null ? "null" : typeof value;
  return h("span", { class: `json-${kind}` }, JSON.stringify(value));
}
