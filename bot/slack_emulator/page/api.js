// Requests to the emulator, and the live WebSocket, which reconnects automatically.

async function call(method, path, body, query) {
  const address = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query ?? {})) if (value) address.searchParams.set(name, value);
  const json = body && !(body instanceof FormData);
  const answer = await fetch(address, {
    method,
    body: json ? JSON.stringify(body) : body,
    headers: json ? { "content-type": "application/json" } : {},
    credentials: "same-origin",
  });
  if (answer.status === 401 || answer.status === 403) {
    throw new Error("This page has no valid token. Open it again at the address that the program printed.");
  }
  const result = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(result?.text ?? result?.error ?? `The emulator responded with status ${answer.status}.`);
  return result ?? {};
}

export const read = (path, query) => call("GET", path, null, query);
export const send = (path, body) => call("POST", path, body);

const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 5000;

/** The live WebSocket of one user. `onOpen` runs at each (re)connection, `onEvent` for each event, `onLost` on disconnect. */
export class Live {
  constructor({ user, onOpen, onEvent, onLost }) {
    Object.assign(this, { user, onOpen, onEvent, onLost });
    this.wait = FIRST_WAIT_MS;
    this.stopped = false;
    this.connect();
  }

  connect() {
    const address = new URL("/page/live", location.origin);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.searchParams.set("user", this.user);
    this.socket = new WebSocket(address);
    this.socket.addEventListener("open", () => {
      this.wait = FIRST_WAIT_MS;
      this.onOpen();
    });
    this.socket.addEventListener("message", ({ data }) => this.onEvent(JSON.parse(data)));
    this.socket.addEventListener("close", () => this.lost());
  }

  lost() {
    if (this.stopped) return;
    this.onLost();
    this.timer = setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT_MS);
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    this.socket.close();
  }
}
