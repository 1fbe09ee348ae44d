// Blocks and legacy attachments, drawn and patched in place.

import { arrange, h, icon, keepingFocus, link, webAddress } from "./dom.js";
import { renderElement } from "./elements.js";
import { mrkdwn, plain, richText, textObject, words } from "./mrkdwn.js";

/** Render `blocks` in `root`. Unchanged blocks keep their nodes, and with them focus and typed text. */
export function patchBlocks(root, blocks, container) {
  const before = new Map((root.drawn ?? []).map((entry) => [entry.key, entry]));
  const entries = blocks.map((given, index) => {
    const block = given.block_id ? given : { ...given, block_id: `block-${index}` };
    const key = JSON.stringify(block);
    const old = before.get(key);
    before.delete(key);
    return old ?? { key, block, node: null };
  });
  keepingFocus(root, () => {
    for (const entry of entries) entry.node ??= renderBlock(entry.block, container);
    arrange(root, entries.map((entry) => entry.node));
  });
  root.drawn = entries;
}

export function renderBlock(block, container) {
  const draw = DRAW[block.type];
  const node = draw ? draw(block, container) : h("p", { class: "unknown" }, `Not shown here: ${block.type}`);
  node.classList.add("block", `block-${block.type}`);
  node.dataset.block = block.block_id ?? "";
  return node;
}

const textNode = (text, container, tag = "div") => h(tag, { class: "text" }, ...textObject(text, container.names));

function section(block, container) {
  const fields = block.fields?.length
    ? h("div", { class: "fields" }, ...block.fields.map((field) => h("div", { class: "field text" }, ...textObject(field, container.names))))
    : null;
  const body = h("div", { class: "section-body" }, block.text ? textNode(block.text, container) : null, fields);
  if (!block.accessory) return h("div", null, body);
  const accessory = block.accessory.type === "image" ? picture(block.accessory, "thumb") : renderElement(block.accessory, block, container);
  return h("div", { class: "with-accessory" }, body, h("div", { class: "accessory" }, accessory));
}

function context(block, container) {
  return h("div", null, ...(block.elements ?? []).map((element) =>
    element.type === "image" ? picture(element, "tiny") : h("span", { class: "text" }, ...textObject(element, container.names))));
}

/** An image from this server or a data URL. External images are shown as links and never loaded. */
function picture(image, size) {
  const address = image.image_url ?? image.slack_file?.url ?? "";
  const alt = image.alt_text ?? "";
  const own = /^data:image\/(png|gif|jpeg|webp);/.test(address) || webAddress(address)?.startsWith(`${location.origin}/`);
  if (own) return h("img", { class: `picture ${size}`, src: address, alt, title: alt, loading: "lazy" });
  if (size === "tiny") return h("span", { class: "picture-away tiny", role: "img", "aria-label": alt, title: alt }, icon("picture"));
  return h("span", { class: `picture-away ${size}` }, link(address, alt || "Image"), h("small", null, "Image from elsewhere, not loaded"));
}

function image(block, container) {
  return h("figure", null, block.title ? h("figcaption", null, ...textObject(block.title, container.names)) : null, picture(block, "large"));
}

function input(block, container) {
  const id = `input-${block.block_id}`;
  const control = renderElement(block.element ?? { type: "nothing" }, block, container);
  const grouped = control.classList.contains("ticks");
  const label = h("div", { class: "label", id }, ...textObject(block.label, container.names), block.optional ? h("span", { class: "optional" }, " (optional)") : null);
  const target = control.matches("input, textarea") || grouped ? control : control.querySelector(".select-box, button");
  target?.setAttribute("aria-labelledby", id);
  if (control.matches("input, textarea")) label.addEventListener("click", () => control.focus());
  return h("div", null, label, control,
    h("div", { class: "field-error", role: "alert" }),
    block.hint ? h("div", { class: "hint" }, ...textObject(block.hint, container.names)) : null);
}

const DRAW = {
  section,
  context,
  image,
  input,
  header: (block) => h("h3", null, ...plain(block.text?.text ?? "")),
  divider: () => h("hr"),
  actions: (block, container) => h("div", null, ...(block.elements ?? []).map((element) => renderElement(element, block, container))),
  rich_text: (block, container) => h("div", { class: "text" }, ...richText(block, container.names)),
  markdown: (block, container) => h("div", { class: "text" }, ...mrkdwn(block.text ?? "", container.names)),
  file: (block) => h("div", null, h("span", { class: "file-line" }, icon("file"), `Remote file ${block.external_id ?? ""}`)),
  video: (block, container) => h("div", null, textNode(block.title, container), link(block.video_url ?? block.title_url ?? "", words(block.title) || "Video")),
};

// legacy attachments

const NAMED_COLOURS = { good: "#2eb67d", warning: "#ecb22e", danger: "#e01e5a" };

function colour(given) {
  const named = NAMED_COLOURS[given] ?? (given?.startsWith("#") ? given : `#${given ?? ""}`);
  return /^#[0-9a-f]{3}([0-9a-f]{3})?$/i.test(named) ? named : null;
}

const FOLDED_CHARACTERS = 700; // more than this, or more line breaks than these, and Slack folds an attachment
const FOLDED_LINES = 5;

const isLong = (attachment) => {
  const texts = attachment.blocks ? attachment.blocks.map(textsOf) : [attachment.text ?? ""];
  const text = texts.join("\n");
  return text.length > FOLDED_CHARACTERS || text.split("\n").length > FOLDED_LINES;
};

const textsOf = (block) => [block.text, ...(block.fields ?? []), ...(block.elements ?? [])].map((part) => part?.text?.text ?? part?.text ?? "").join(" ");

/** Fold a long attachment until its reader asks for more; it stays open while it is patched. */
function fold(node, attachment) {
  const [, , more] = node.children;
  more.hidden = !isLong(attachment);
  node.classList.toggle("folded", !more.hidden && !node.opened);
  more.textContent = node.opened ? "Show less" : "Show more";
  more.onclick = () => {
    node.opened = !node.opened;
    fold(node, attachment);
  };
}

export function patchAttachments(root, attachments, container) {
  while (root.children.length > attachments.length) root.lastChild.remove();
  attachments.forEach((attachment, index) => {
    const known = root.children[index];
    const node = known ?? root.appendChild(h("div", { class: "attachment" }, h("div", { class: "attachment-text" }), h("div", { class: "blocks" }),
      h("button", { type: "button", class: "quiet-link show-more" })));
    node.style.borderLeftColor = colour(attachment.color) ?? "";
    const legacy = JSON.stringify({ ...attachment, blocks: null });
    if (node.drawnFrom !== legacy) node.firstChild.replaceChildren(...legacyParts(attachment, container));
    node.drawnFrom = legacy;
    node.firstChild.hidden = !node.firstChild.childNodes.length;
    patchBlocks(node.children[1], attachment.blocks ?? [], container);
    fold(node, attachment);
  });
}

function legacyParts(attachment, container) {
  if (attachment.blocks?.length) return [];
  const text = (value) => mrkdwn(String(value), container.names);
  const { pretext, author_name: author, title, title_link: address, text: body, fields, image_url: picked, footer, ts } = attachment;
  const when = ts ? new Date(Number(ts) * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) : null;
  return [
    pretext && h("div", { class: "text" }, ...text(pretext)),
    author && h("div", { class: "attachment-author" }, author),
    title && h("div", { class: "attachment-title" }, address ? link(address, ...plain(title)) : h("span", null, ...plain(title))),
    body && h("div", { class: "text" }, ...text(body)),
    fields?.length && h("div", { class: "fields" }, ...fields.map((field) =>
      h("div", { class: field.short ? "field text" : "field wide text" }, h("b", null, String(field.title ?? "")), h("div", null, ...text(field.value ?? ""))))),
    picked && picture({ image_url: picked, alt_text: title ?? "Image" }, "large"),
    (footer || when) && h("div", { class: "block-context" }, h("span", null, [footer, when].filter(Boolean).join(" · "))),
    !(pretext || title || body || fields?.length) && attachment.fallback && h("div", { class: "text" }, ...text(attachment.fallback)),
  ].filter(Boolean);
}
