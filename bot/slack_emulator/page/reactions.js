// Reactions under a message, and the picker that adds one.

import { h } from "./dom.js";
import { emoji, names } from "./emoji.js";
import { openPicker } from "./popups.js";

const FIRST = ["eyes", "white_check_mark", "+1", "raised_hand", "mag", "warning", "rotating_light", "x", "question", "hourglass_flowing_sand", "tada", "pray"];
const MOST = 60; // the rest is found by searching

const sign = (name) => h("span", { class: "emoji", "aria-hidden": "true" }, emoji(name));

/** One button per reaction. Pressing it adds the user's own; removing a reaction is not supported. */
export function reactionNodes(message, store, onReact) {
  return (message.reactions ?? []).map((reaction) => {
    const users = reaction.users ?? [];
    const own = users.includes(store.me);
    const who = users.map((id) => store.user(id)).join(", ");
    return h("button", {
      type: "button", class: "reaction", title: `${who} reacted with :${reaction.name}:`, data: { focus: `reaction-${reaction.name}` },
      "aria-pressed": String(own), "aria-label": `${reaction.name.replace(/_/g, " ")}: ${who}`, onclick: () => { if (!own) onReact(reaction.name); },
    }, emoji(reaction.name) ? sign(reaction.name) : `:${reaction.name}:`, h("b", null, String(reaction.count ?? users.length)));
  });
}

export function openReactions(anchor, onReact) {
  openPicker(anchor, { label: "Add a reaction", placeholder: "Search reactions", load: (query) => [{ options: found(query) }], onPick: (option) => onReact(option.key) });
}

function found(query) {
  const wanted = query.toLowerCase().replace(/:/g, "").replace(/\s+/g, "_");
  const others = names().filter((name) => !FIRST.includes(name));
  return [...FIRST, ...others].filter((name) => name.includes(wanted)).slice(0, MOST)
    .map((name) => ({ key: name, label: name, nodes: [sign(name), ` ${name.replace(/_/g, " ")}`] }));
}
