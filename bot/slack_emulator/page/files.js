// Files in messages: name and type, text previews, images.

import { h, icon } from "./dom.js";

const TEXT_FILE = /^(text\/|application\/(json|xml|x-yaml|x-ndjson))/;
const TEXT_ENDINGS = new Set(["txt", "text", "log", "md", "markdown", "json", "jsonl", "ndjson", "csv", "tsv", "yaml", "yml", "xml", "eml", "ini", "toml", "py", "js", "sh", "html"]);
const PICTURE_ENDINGS = new Set(["png", "jpg", "jpeg", "gif", "webp"]);
const PREVIEW_LIMIT_BYTES = 200000;
const PREVIEW_CHARACTERS = 4000;

export function patchFiles(root, files) {
  const wanted = JSON.stringify(files.map((file) => [file.id, file.title, file.size, file.mode]));
  if (root.drawnFrom === wanted) return;
  root.drawnFrom = wanted;
  root.replaceChildren(...files.map(fileNode));
}

function fileNode(file) {
  if (file.mode === "tombstone") return h("div", { class: "file" }, h("small", null, "This file was deleted."));
  const name = file.title || file.name || file.id;
  const address = `/page/file/${encodeURIComponent(file.id)}`;
  const readable = file.preview || file.mode === "snippet" || TEXT_FILE.test(file.mimetype ?? "") || TEXT_ENDINGS.has(file.filetype);
  const peek = h("pre", { class: "pre snippet", hidden: true });
  const toggle = async ({ currentTarget }) => {
    if (!peek.childNodes.length) peek.textContent = await previewOf(file, address);
    peek.hidden = !peek.hidden;
    currentTarget.setAttribute("aria-expanded", String(!peek.hidden));
  };
  if (file.preview) peek.textContent = file.preview;
  const shown = PICTURE_ENDINGS.has(file.filetype) ? h("img", { class: "picture large", src: address, alt: name, loading: "lazy" }) : null;
  return h("div", { class: "file" },
    h("div", { class: "file-line" }, h("span", { class: "file-icon" }, icon("file")),
      h("div", { class: "file-words" }, h("b", null, name), h("small", null, [file.pretty_type || file.filetype || file.mimetype, size(file.size)].filter(Boolean).join(" · "))),
      readable && (file.size ?? 0) <= PREVIEW_LIMIT_BYTES ? h("button", { type: "button", class: "button", "aria-expanded": "false", onclick: toggle }, "Preview") : null,
      h("a", { class: "icon-button", href: address, download: file.name ?? name, "aria-label": `Download ${name}`, title: "Download" }, icon("download"))),
    peek, shown);
}

async function previewOf(file, address) {
  const answer = await fetch(address, { credentials: "same-origin" });
  if (!answer.ok) return `The file could not be read (${answer.status}).`;
  const text = await answer.text();
  return text.length > PREVIEW_CHARACTERS ? `${text.slice(0, PREVIEW_CHARACTERS)}\n…` : text;
}

function size(bytes) {
  if (!Number.isFinite(bytes)) return null;
  if (bytes < 1024) return `${bytes} bytes`;
  return bytes < 1048576 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1048576).toFixed(1)} MB`;
}
