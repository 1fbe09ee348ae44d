// DOM helpers. Untrusted text only ever becomes text nodes.

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "selected", "htmlFor", "open"]);
const LISTENER = /^on[a-z]/;

/** Create an element: `h("button", {class: "x", onclick: f}, "text", node, [more])`. Null and false children are skipped. */
export function h(tag, props = null, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) setProp(node, name, value);
  node.append(...flat(children));
  return node;
}

function setProp(node, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name === "class") node.className = value;
  else if (name === "data") Object.assign(node.dataset, value);
  else if (LISTENER.test(name) && typeof value === "function") node.addEventListener(name.slice(2), value);
  else if (PROPERTIES.has(name)) node[name] = value;
  else if (LISTENER.test(name) || name === "style" || name === "srcdoc") throw new Error(`not an attribute we set: ${name}`);
  else node.setAttribute(name, value === true ? "" : String(value));
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Set the children of `parent` with as few moves as possible, to keep focus and scroll position. */
export function arrange(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.childNodes]) if (!keep.has(child)) child.remove();
  let at = parent.firstChild;
  for (const node of wanted) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}

/** Run `change`, then restore focus and caret to the control with the same `data-focus` if it was redrawn. */
export function keepingFocus(root, change) {
  const active = document.activeElement;
  const key = root.contains(active) ? active.closest("[data-focus]")?.dataset.focus : undefined;
  const caret = key && "selectionStart" in active ? [active.selectionStart, active.selectionEnd] : null;
  change();
  if (!key || root.contains(document.activeElement)) return;
  const holder = root.querySelector(`[data-focus="${CSS.escape(key)}"]`);
  const again = holder?.matches("button, input, textarea, a") ? holder : holder?.querySelector("button, input, textarea, a");
  if (!again) return;
  again.focus({ preventScroll: true });
  try {
    if (caret && caret[0] !== null) again.setSelectionRange(...caret);
  } catch {
    // number and email inputs do not support setSelectionRange
  }
}

/** The URL if it is http(s), else null: no other scheme becomes a link. */
export function webAddress(text) {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

export function link(address, ...children) {
  const href = webAddress(address);
  if (!href) return h("span", null, ...children);
  return h("a", { href, target: "_blank", rel: "noopener noreferrer", class: "link" }, ...children);
}

const ICONS = {
  hash: "M5 9h14M4 15h14M10 4 8 20M16 4l-2 16",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  share: "M9 7.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM15 7.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9z",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6 6 18",
  send: "M4 12 20 4l-5 16-4-6-7-2zM11 14l9-10",
  bolt: "M13 3 5 14h6l-1 7 8-11h-6z",
  clip: "M8 12.5l6-6a3 3 0 0 1 4.3 4.3L11 18a4.5 4.5 0 0 1-6.4-6.4L12 4.3",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  reply: "M20 12a7.5 7.5 0 0 1-11 6.6L4 20l1.4-4.6A7.5 7.5 0 1 1 20 12z",
  eye: "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12zM12 9.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  auto: "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17zM12 4v16M15 5v14M18 7.5v9",
  code: "M8.5 7 3.5 12l5 5M15.5 7l5 5-5 5M13.5 5l-3 14",
  bell: "M6 17h12l-1.5-2.5V10a4.5 4.5 0 0 0-9 0v4.5zM10 19.5a2 2 0 0 0 4 0",
  compass: "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17zM15.5 8.5l-2 5-5 2 2-5z",
  down: "M6 9.5l6 6 6-6",
  right: "M9.5 6l6 6-6 6",
  back: "M14.5 6l-6 6 6 6",
  check: "M5 12.5l5 5L19.5 7",
  picture: "M4 5h16v14H4zM4 16l4.5-5 4 4 3-3L20 16M15.5 9h.01",
  file: "M6.5 3.5h7l4.5 4.5v12.5h-11.5zM13.5 3.5V8H18",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  warning: "M12 4 2.8 20h18.4zM12 10v4.5M12 17.3h.01",
  home: "M4 11.5 12 4.5l8 7V20h-5.5v-5h-5v5H4z",
  trash: "M5 7h14M9.5 7V4.5h5V7M7 7l1 13h8l1-13",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  app: "M7 8h10a3 3 0 0 1 3 3v6a3 3 0 0 1-3 3H7a3 3 0 0 1-3-3v-6a3 3 0 0 1 3-3zM12 8V4.5M9 13.5h.01M15 13.5h.01M9.5 16.8h5",
};

/** An icon hidden from screen readers: the control that contains it has its own label. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

export function iconButton(name, label, onclick, extra = {}) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...extra }, icon(name));
}

export function announce(text) {
  document.getElementById("announcer").textContent = text;
}
