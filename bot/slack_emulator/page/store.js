// State of the page: users, channels, commands, open views; also resolves names in texts.

const DONE = "workspace.done";

export class Store {
  constructor() {
    this.me = null;
    this.team = { name: "Local workspace" };
    this.users = new Map();
    this.channels = new Map();
    this.commands = [];
    this.shortcuts = [];
    this.pointers = [];
    this.done = new Set(JSON.parse(sessionStorage.getItem(DONE) ?? "[]")); // titles of pointers
    this.views = new Map();
    this.home = null;
    this.botId = null;
    this.hasHome = true;
    this.notifications = []; // what the phone showed, oldest first
    this.openChannel = () => {};
  }

  load(state) {
    this.team = state.team ?? this.team;
    this.me = state.me ?? this.me;
    this.users = new Map((state.users ?? []).map((user) => [user.id, user]));
    this.channels = new Map((state.channels ?? []).map((channel) => [channel.id, channel]));
    this.commands = state.commands ?? [];
    this.shortcuts = state.shortcuts ?? [];
    this.pointers = state.pointers ?? [];
    this.views = new Map((state.views ?? []).map((view) => [view.id, view]));
    this.home = state.home ?? null;
    this.botId = state.bot ?? null;
    this.hasHome = state.has_home !== false;
    this.notifications = state.notifications ?? [];
  }

  /** Tick the pointers that wait for what is shown; true if there is a new one. */
  tick(shown) {
    const text = JSON.stringify(shown);
    return this.tickOff(this.pointers.filter((pointer) => pointer.done && new RegExp(pointer.done).test(text)));
  }

  /** Tick these pointers; true if one of them was not ticked before. */
  tickOff(pointers) {
    const before = this.done.size;
    for (const { title } of pointers) this.done.add(title);
    sessionStorage.setItem(DONE, JSON.stringify([...this.done]));
    return this.done.size > before;
  }

  /** Open modals, topmost last. */
  stack() {
    return [...this.views.values()].sort((a, b) => (a.stack_depth ?? 0) - (b.stack_depth ?? 0));
  }

  user(id) {
    const user = this.users.get(id);
    return user ? user.real_name || user.name || id : id;
  }

  channel(id) {
    const channel = this.channels.get(id);
    return channel ? this.title(channel) : id;
  }

  title(channel) {
    if (!channel.is_im) return channel.name ?? channel.id;
    const other = this.partner(channel);
    return other === this.me ? `${this.user(other)} (you)` : this.user(other);
  }

  /** The other user of a direct message. */
  partner(channel) {
    const members = channel.members ?? [];
    return members.find((id) => id !== this.me) ?? channel.user ?? members[0] ?? channel.name;
  }

  bot() {
    return this.users.get(this.botId) ?? [...this.users.values()].find((user) => user.is_bot) ?? null;
  }

  people() {
    return [...this.users.values()].filter((user) => !user.is_bot);
  }
}

/** Values entered in one message or view, by block_id and action_id; kept across redraws. */
export class Entered {
  constructor() {
    this.values = new Map();
  }

  key(blockId, actionId) {
    return JSON.stringify([blockId, actionId]);
  }

  has(blockId, actionId) {
    return this.values.has(this.key(blockId, actionId));
  }

  get(blockId, actionId) {
    return this.values.get(this.key(blockId, actionId));
  }

  set(blockId, actionId, value) {
    this.values.set(this.key(blockId, actionId), value);
  }
}
