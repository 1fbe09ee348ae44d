// Interactive elements of blocks: rendering, values, and the requests they send.

import { h, icon, webAddress } from "./dom.js";
import { textObject, words } from "./mrkdwn.js";
import { confirmDialog, openMenu, openPicker, toast } from "./popups.js";

/*
 * A `container` is what blocks belong to: a message, a modal or the Home tab.
 *   names    the store (names of users and channels)
 *   entered  the values entered so far (Entered)
 *   act(block, element, value)             -> promise: sends block_actions
 *   options(block, element, query)         -> promise of option groups from the app
 *   upload(file)                           -> promise of the stored file
 *   touched(blockId)                       a field was changed (clears its error)
 */

/** Whether using this element sends block_actions: always, except in input blocks without dispatch_action. */
const tells = (block) => block.type !== "input" || block.dispatch_action === true;

export function renderElement(element, block, container) {
  const draw = DRAW[element.type];
  const node = draw ? draw(element, block, container) : unknown(element);
  node.dataset.focus = JSON.stringify([block.block_id, element.action_id]);
  node.dataset.action = element.action_id ?? "";
  return node;
}

function unknown(element) {
  return h("span", { class: "unknown" }, `Not shown here: ${element.type}`);
}

/** Current value: what was entered and is still there to choose, else the initial one. Options are option objects. */
export function current(element, block, container) {
  const { block_id: blockId } = block;
  if (container.entered.has(blockId, element.action_id)) return stillThere(element, container.entered.get(blockId, element.action_id));
  return initial(element, container);
}

function stillThere(element, value) {
  const listed = [...(element.options ?? []), ...(element.option_groups ?? []).flatMap((group) => group.options)].map(keyOf);
  if (!listed.length) return value;
  if (Array.isArray(value)) return value.filter((option) => listed.includes(keyOf(option)));
  return value && !listed.includes(keyOf(value)) ? null : value;
}

function initial(element, container) {
  const many = element.type.startsWith("multi_") || element.type === "checkboxes" || element.type === "file_input";
  const plain = element.initial_value ?? element.initial_date ?? element.initial_time ?? element.initial_date_time;
  const one = element.initial_option ?? element.initial_user ?? element.initial_channel ?? element.initial_conversation;
  const list = element.initial_options ?? element.initial_users ?? element.initial_channels ?? element.initial_conversations;
  const here = element.default_to_current_conversation && container.channel;
  if (many) return list ?? (here ? [here] : []);
  return plain ?? one ?? (here || null);
}

/** The value for the page API: option values, ids, strings, or lists of these; null if empty. */
export function wire(value) {
  if (Array.isArray(value)) return value.map(wire);
  if (value && typeof value === "object") return value.value;
  return value === "" ? null : value;
}

/** Values of the input elements in these blocks: `{block_id: {action_id: value}}`. */
export function collect(blocks, container) {
  const values = {};
  for (const block of blocks ?? []) {
    for (const element of elementsOf(block)) {
      if (!element.action_id || element.type === "button" || element.type === "overflow") continue;
      (values[block.block_id] ??= {})[element.action_id] = wire(current(element, block, container));
    }
  }
  return values;
}

export function elementsOf(block) {
  if (block.type === "actions" || block.type === "context_actions") return block.elements ?? [];
  return [block.element ?? block.accessory].filter((element) => element && element.type !== "image");
}

/** Show the confirm dialog, if any, then send the action; false if the user declined. */
async function use(element, block, container, value, node) {
  const asks = element.confirm;
  if (asks && !(await confirmed(asks, container))) return false;
  node?.setAttribute("aria-busy", "true");
  try {
    await container.act(block, element, value);
  } catch (error) {
    toast(error.message);
  } finally {
    node?.removeAttribute("aria-busy");
  }
  return true;
}

function confirmed(asks, container) {
  return confirmDialog({
    title: words(asks.title) || "Are you sure?",
    body: textObject(asks.text, container.names),
    yes: words(asks.confirm) || "Yes",
    no: words(asks.deny) || "Cancel",
    danger: asks.style === "danger",
  });
}

/** Store a new value and send it if the element dispatches; restore the old one if the user declines to confirm. */
async function change(element, block, container, value, node, redraw) {
  const before = current(element, block, container);
  container.entered.set(block.block_id, element.action_id, value);
  container.touched?.(block.block_id);
  if (!tells(block)) return;
  if (await use(element, block, container, wire(value), node)) return;
  container.entered.set(block.block_id, element.action_id, before);
  redraw?.();
}

// buttons and overflow

function button(element, block, container) {
  const label = words(element.text);
  const tone = { primary: " primary", danger: " danger" }[element.style] ?? "";
  const href = element.url && webAddress(element.url);
  const props = {
    class: `button${tone}`,
    "aria-label": element.accessibility_label,
    onclick: (event) => {
      if (href && element.confirm) event.preventDefault();
      use(element, block, container, true, event.currentTarget).then((agreed) => {
        if (agreed && href && element.confirm) window.open(href, "_blank", "noopener,noreferrer");
      });
    },
  };
  if (href) return h("a", { ...props, href, target: "_blank", rel: "noopener noreferrer" }, ...textObject(element.text, container.names));
  return h("button", { ...props, type: "button" }, ...(element.text ? textObject(element.text, container.names) : [label]));
}

function overflow(element, block, container) {
  return h("button", {
    type: "button", class: "button overflow", "aria-label": "More", title: "More", "aria-haspopup": "menu", "aria-expanded": "false",
    onclick: ({ currentTarget }) => openMenu(currentTarget, element.options.map((option) => ({
      label: words(option.text),
      description: option.description && words(option.description),
      onPick: () => {
        const href = option.url && webAddress(option.url);
        if (href) window.open(href, "_blank", "noopener,noreferrer");
        use(element, block, container, option.value, currentTarget);
      },
    })), { label: "More" }),
  }, icon("more"));
}

// select menus

/** An option object as a row of the picker. */
const row = (option) => ({
  key: option.value ?? "", label: words(option.text), description: option.description && words(option.description), value: option,
});

function matching(groups, query) {
  const wanted = query.toLowerCase();
  return groups.map((group) => ({
    ...group,
    options: group.options.filter((option) => `${option.label} ${option.description ?? ""}`.toLowerCase().includes(wanted)),
  }));
}

const asGroups = (source) =>
  source.option_groups?.length
    ? source.option_groups.map((group) => ({ label: words(group.label), options: (group.options ?? []).map(row) }))
    : [{ label: "", options: (source.options ?? []).map(row) }];

const idRow = (id, label, description) => ({ key: id, label, description, value: id });

const peopleRows = (names) => [...names.users.values()].map((user) => idRow(user.id, names.user(user.id), `@${user.name}`));

const channelRows = (names, wanted) => [...names.channels.values()].filter(wanted)
  .map((channel) => idRow(channel.id, `${channel.is_im ? "" : "#"}${names.title(channel)}`));

function conversationRows(element, names) {
  const filter = element.filter ?? {};
  const kinds = new Set(filter.include ?? ["public", "private", "im", "mpim"]);
  return channelRows(names, (channel) => {
    if (filter.exclude_external_shared_channels && channel.is_shared) return false;
    if (channel.is_im && filter.exclude_bot_users && names.users.get(names.partner(channel))?.is_bot) return false;
    return kinds.has(channel.is_im ? "im" : channel.is_private ? "private" : "public");
  });
}

const SOURCES = {
  static_select: (element) => (query) => matching(asGroups(element), query),
  external_select: (element, block, container) => async (query) => asGroups(await container.options(block, element, query)),
  users_select: (element, block, container) => (query) => matching([{ label: "", options: peopleRows(container.names) }], query),
  channels_select: (element, block, container) => (query) =>
    matching([{ label: "", options: channelRows(container.names, (channel) => !channel.is_im && !channel.is_private) }], query),
  conversations_select: (element, block, container) => (query) =>
    matching([{ label: "", options: conversationRows(element, container.names) }], query),
};

const EXTERNAL_MINIMUM = 3; // Slack's default for min_query_length

const minimumOf = (element) => (element.type.endsWith("external_select") ? (element.min_query_length ?? EXTERNAL_MINIMUM) : 0);

const keyOf = (value) => (value && typeof value === "object" ? (value.value ?? "") : value);

function labelOf(value, element, names) {
  if (value && typeof value === "object") return words(value.text);
  if (element.type.includes("users")) return names.user(value);
  const channel = names.channels.get(value);
  return channel ? `${channel.is_im ? "" : "#"}${names.title(channel)}` : String(value);
}

function select(element, block, container) {
  const holder = h("div", { class: "select" });
  const hint = words(element.placeholder) || "Choose an option";
  const pick = (option) => {
    change(element, block, container, option.value, holder, draw);
    draw();
    holder.querySelector("button").focus({ preventScroll: true });
  };
  const draw = () => {
    const value = current(element, block, container);
    const label = value === null || value === undefined ? null : labelOf(value, element, container.names);
    const opener = h("button", {
      type: "button", class: "select-box", "aria-haspopup": "listbox", "aria-expanded": "false",
      "aria-label": label ? `${hint}: ${label}` : hint, disabled: element.disabled,
      onclick: ({ currentTarget }) => openPicker(currentTarget, {
        label: hint, placeholder: hint, minimum: minimumOf(element), onPick: pick,
        load: SOURCES[element.type](element, block, container),
        chosen: new Set(value === null || value === undefined ? [] : [keyOf(value)]),
      }),
      onkeydown: (event) => {
        if (event.key !== "ArrowDown") return;
        event.preventDefault();
        event.stopPropagation();
        event.currentTarget.click();
      },
    }, h("span", { class: label ? "select-label" : "select-label empty" }, label ?? hint), icon("down"));
    holder.replaceChildren(opener);
    if (block.type === "input" && block.optional && label) {
      holder.append(h("button", {
        type: "button", class: "clear", "aria-label": "Clear", title: "Clear",
        onclick: () => { change(element, block, container, null, holder, draw); draw(); holder.querySelector("button").focus(); },
      }, icon("close")));
    }
  };
  draw();
  return holder;
}

function multiSelect(element, block, container) {
  const single = element.type.replace("multi_", "");
  const hint = words(element.placeholder) || "Choose options";
  const most = element.max_selected_items ?? Infinity;
  const holder = h("div", { class: "select multi" });
  let now = current(element, block, container) ?? [];

  const commit = () => {
    change(element, block, container, now, holder, () => { now = current(element, block, container); draw(); });
    draw();
  };
  const chip = (value) => h("span", { class: "chip" }, labelOf(value, element, container.names), h("button", {
    type: "button", "aria-label": `Remove ${labelOf(value, element, container.names)}`,
    onclick: () => { now = now.filter((other) => keyOf(other) !== keyOf(value)); commit(); holder.querySelector(".select-box").focus(); },
  }, icon("close")));
  const openList = ({ currentTarget }) => {
    let changed = false;
    openPicker(currentTarget, {
      label: hint, placeholder: hint, minimum: minimumOf(element), multi: true,
      load: SOURCES[single]({ ...element, type: single }, block, container),
      chosen: new Set(now.map(keyOf)),
      onToggle: (option, on) => {
        if (on && now.length >= most) {
          toast(`At most ${most} can be chosen.`);
          return false;
        }
        changed = true;
        now = on ? [...now, option.value] : now.filter((value) => keyOf(value) !== option.key);
        return true;
      },
      onClose: () => {
        if (!changed) return;
        commit();
        holder.querySelector(".select-box").focus({ preventScroll: true });
      },
    });
  };
  const draw = () => holder.replaceChildren(
    ...now.map(chip),
    h("button", { type: "button", class: "select-box", "aria-haspopup": "listbox", "aria-expanded": "false", "aria-label": hint, onclick: openList },
      h("span", { class: "select-label empty" }, now.length ? "Add or remove" : hint), icon("down")),
  );
  draw();
  return holder;
}

// files

const MOST_FILES = 10; // Slack's default for max_files

function fileInput(element, block, container) {
  const most = element.max_files ?? MOST_FILES;
  const types = element.filetypes ?? [];
  const holder = h("div", { class: "select multi" });
  let sending = 0;
  const files = () => current(element, block, container) ?? [];
  const keep = (now) => {
    change(element, block, container, now, holder, draw);
    draw();
  };
  const take = async (file) => {
    if (files().length >= most) return toast(`At most ${most} ${most === 1 ? "file" : "files"}.`);
    const ending = file.name.split(".").at(-1).toLowerCase();
    if (types.length && !types.includes(ending)) return toast(`Only these kinds of files: ${types.join(", ")}.`);
    sending += 1;
    draw();
    try {
      const stored = await container.upload(file);
      sending -= 1;
      return keep([...files(), { value: stored.id, text: stored.name ?? file.name }]);
    } catch (error) {
      sending -= 1;
      draw();
      return toast(error.message);
    }
  };
  const picker = h("input", {
    type: "file", hidden: true, multiple: most > 1, accept: types.length ? types.map((type) => `.${type}`).join(",") : null,
    onchange: async () => {
      const picked = [...picker.files];
      picker.value = "";
      for (const file of picked) await take(file);
    },
  });
  const draw = () => holder.replaceChildren(
    picker,
    ...files().map((file) => h("span", { class: "chip" }, file.text, h("button", {
      type: "button", "aria-label": `Remove ${file.text}`, onclick: () => keep(files().filter((other) => other !== file)),
    }, icon("close")))),
    h("button", { type: "button", class: "button", "aria-busy": sending ? "true" : null, onclick: () => picker.click() },
      icon("clip"), sending ? "Sending…" : files().length ? "Add a file" : "Choose a file"),
  );
  draw();
  return holder;
}

// text inputs

const TYPING_PAUSE_MS = 300;

function textBox(type, attributes = {}) {
  return (element, block, container) => {
    const multiline = element.type === "plain_text_input" && element.multiline;
    const when = element.dispatch_action_config?.trigger_actions_on ?? ["on_enter_pressed"];
    let timer = null;
    const node = h(multiline ? "textarea" : "input", {
      class: "field-box", ...(multiline ? { rows: "4" } : { type }), ...attributes,
      placeholder: words(element.placeholder), value: current(element, block, container) ?? "",
      maxlength: element.max_length, min: element.min_value, max: element.max_value,
      step: element.type === "number_input" ? (element.is_decimal_allowed ? "any" : "1") : null,
      autofocus: element.focus_on_load, autocomplete: "off",
      "aria-required": block.type === "input" && !block.optional ? "true" : null,
      oninput: () => {
        container.entered.set(block.block_id, element.action_id, node.value);
        container.touched?.(block.block_id);
        if (!tells(block) || !when.includes("on_character_entered")) return;
        clearTimeout(timer);
        timer = setTimeout(() => use(element, block, container, wire(node.value)), TYPING_PAUSE_MS);
      },
      onkeydown: (event) => {
        const send = event.key === "Enter" && !event.isComposing && (!multiline || event.metaKey || event.ctrlKey);
        if (!send || !tells(block) || !when.includes("on_enter_pressed")) return;
        event.preventDefault();
        use(element, block, container, wire(node.value));
      },
    });
    return node;
  };
}

/** Date and time pickers: the browser's own inputs. The action is sent once the user settles on a value. */
function moment(type) {
  const SETTLED_MS = 700;
  return (element, block, container) => {
    let timer = null;
    let sent = current(element, block, container) ?? "";
    const settle = () => {
      clearTimeout(timer);
      if (node.value === sent || !node.isConnected) return;
      sent = node.value;
      change(element, block, container, fromBox(type, node.value), node, () => { node.value = toBox(type, current(element, block, container)); });
    };
    const node = h("input", {
      class: "field-box moment", type, value: toBox(type, current(element, block, container)),
      "aria-label": words(element.placeholder) || { date: "Date", time: "Time" }[type] || "Date and time",
      onchange: () => { clearTimeout(timer); timer = setTimeout(settle, SETTLED_MS); },
      oninput: () => {
        if (tells(block)) return;
        container.entered.set(block.block_id, element.action_id, fromBox(type, node.value));
        container.touched?.(block.block_id);
      },
      onblur: settle,
      onkeydown: (event) => { if (event.key === "Enter") { event.preventDefault(); settle(); } },
    });
    return node;
  };
}

const MINUTE_MS = 60000;

function toBox(type, value) {
  if (!value || type !== "datetime-local") return value ?? "";
  const date = new Date(Number(value) * 1000);
  return new Date(date.getTime() - date.getTimezoneOffset() * MINUTE_MS).toISOString().slice(0, 16);
}

function fromBox(type, text) {
  if (!text) return null;
  return type === "datetime-local" ? Math.floor(new Date(text).getTime() / 1000) : text;
}

// checkboxes and radio buttons

let serial = 0;

function ticks(type) {
  return (element, block, container) => {
    const name = `choice-${(serial += 1)}`;
    const options = element.options ?? [];
    const node = h("div", { class: "ticks", role: type === "radio" ? "radiogroup" : "group" });
    const draw = () => {
      const value = current(element, block, container);
      const on = new Set((Array.isArray(value) ? value : [value]).filter(Boolean).map(keyOf));
      node.replaceChildren(...options.map((option) => h(
        "label", { class: "tick" },
        h("input", { type, name, checked: on.has(option.value), value: option.value, onchange: taken }),
        h("span", null,
          h("span", null, ...textObject(option.text, container.names)),
          option.description ? h("small", null, ...textObject(option.description, container.names)) : null),
      )));
    };
    const taken = () => {
      const on = new Set([...node.querySelectorAll("input:checked")].map((box) => box.value));
      const chosen = options.filter((option) => on.has(option.value));
      change(element, block, container, type === "radio" ? (chosen[0] ?? null) : chosen, node, draw);
    };
    draw();
    return node;
  };
}

const DRAW = {
  button,
  overflow,
  static_select: select,
  external_select: select,
  users_select: select,
  channels_select: select,
  conversations_select: select,
  multi_static_select: multiSelect,
  multi_external_select: multiSelect,
  multi_users_select: multiSelect,
  multi_channels_select: multiSelect,
  multi_conversations_select: multiSelect,
  datepicker: moment("date"),
  timepicker: moment("time"),
  datetimepicker: moment("datetime-local"),
  checkboxes: ticks("checkbox"),
  radio_buttons: ticks("radio"),
  plain_text_input: textBox("text"),
  email_text_input: textBox("email", { inputmode: "email" }),
  url_text_input: textBox("url", { inputmode: "url" }),
  number_input: textBox("number"),
  file_input: fileInput,
};

// Slack's client-side validation

/** The validation error that Slack's client shows for this input block, or null. */
export function complaint(block, container) {
  const element = block.element;
  const value = wire(current(element, block, container));
  const empty = value === null || value === undefined || (Array.isArray(value) && !value.length);
  if (empty) return block.optional ? null : "Please complete this required field.";
  return CHECKS[element.type]?.(element, String(value)) ?? null;
}

const CHECKS = {
  plain_text_input: (element, text) =>
    text.length < (element.min_length ?? 0) ? `Please enter at least ${element.min_length} characters.` : null,
  email_text_input: (element, text) => (/^[^\s@]+@[^\s@]+\.[^\s@]+$/.test(text) ? null : "Please enter a valid email address."),
  url_text_input: (element, text) => (webAddress(text) ? null : "Please enter a valid URL."),
  number_input: (element, text) => {
    const number = Number(text);
    if (!Number.isFinite(number) || (!element.is_decimal_allowed && !Number.isInteger(number))) {
      return element.is_decimal_allowed ? "Please enter a number." : "Please enter a whole number.";
    }
    if (element.min_value !== undefined && number < Number(element.min_value)) return `Please enter a number of at least ${element.min_value}.`;
    if (element.max_value !== undefined && number > Number(element.max_value)) return `Please enter a number of at most ${element.max_value}.`;
    return null;
  },
};
