// Requests and streams. A stream is a WebSocket, because a browser opens only a few connections to a server at a time.
import { useEffect, useState } from "preact/hooks";
import { t } from "./words";

// Frozen is the state in an exported page: when it was taken, and the answers by path.
interface Frozen { at: string; node: string; answers: Record<string, unknown> }

export const frozen: Frozen | undefined = EXPORTED ? JSON.parse(document.getElementById("state")!.textContent!) : undefined;

// request asks the page's server. It asks once more if a GET gets no answer: Chromium drops its requests when the network
// of the machine changes, as with each pod that starts. What changes something is not repeated, because it may have been
// done.
export async function request(method: string, path: string, body?: unknown): Promise<Response> {
  if (frozen) {
    const answer = frozen.answers[path];
    if (method !== "GET" || answer === undefined) throw new Error(t("This is not a part of the exported page."));
    return new Response(typeof answer === "string" ? answer : JSON.stringify(answer));
  }
  const ask = () => fetch(path, { method, body: body === undefined ? undefined : JSON.stringify(body),
    headers: body === undefined ? {} : { "Content-Type": "application/json" } });
  const r = await ask().catch(async e => {
    if (method !== "GET") throw e;
    await new Promise(passed => setTimeout(passed, again));
    return ask();
  });
  if (r.ok) return r;
  const text = await r.text();
  let message = text.trim() || r.statusText;
  try {
    const status = JSON.parse(text);
    const next = status.details?.causes?.find((c: { reason?: string }) => c.reason === "NextStep")?.message;
    message = status.message + (next ? " → " + next : "");
  } catch { /* the answer is plain text */ }
  throw new Error(message);
}

export const get = async <T>(path: string): Promise<T> => (await request("GET", path)).json();

export interface Stream { close(): void }

// Conversation has what a page does with a stream. end is called once, with the cause, or "" for a regular end. lost says
// that the connection has ended without a cause.
export interface Conversation { opened?(): void; data(part: Uint8Array): void; end(cause: string, lost: boolean): void }

// start opens a WebSocket of a path. What is sent before it is open is dropped: opened sends the first message.
export function start(path: string, c: Conversation): Stream & { send(message: string | Uint8Array): void } {
  const socket = new WebSocket(location.origin.replace("http", "ws") + "/live" + path);
  socket.binaryType = "arraybuffer";
  let cause = "", closed = false;
  socket.onopen = () => { if (!closed) c.opened?.(); };
  socket.onmessage = m => {
    if (typeof m.data === "string") cause = m.data;
    else if (!closed) c.data(new Uint8Array(m.data));
  };
  socket.onclose = e => { if (!closed) c.end(e.code === 1000 ? "" : cause || t("connection closed"), e.code !== 1000 && !cause); };
  return {
    close() { closed = true; socket.close(); },
    send(message) { if (socket.readyState === WebSocket.OPEN) socket.send(message); },
  };
}

// open streams a path as text. data gets each part.
export function open(path: string, data: (text: string) => void, end: Conversation["end"]): Stream {
  const decoder = new TextDecoder();
  return start(path, { data: part => data(decoder.decode(part, { stream: true })), end });
}

// lines calls line for each line of a stream of text.
export function lines(line: (text: string) => void): (text: string) => void {
  let rest = "";
  return text => {
    const parts = (rest + text).split("\n");
    rest = parts.pop()!;
    parts.forEach(line);
  };
}

export const again = 1000; // milliseconds until a lost stream is opened again, or a lost request is repeated

// keepOpen opens a stream again after each end, until the returned function is called. begin returns what takes the text
// of a new stream. lost gets the cause of each end.
export function keepOpen(path: string, begin: () => (text: string) => void, lost?: (cause: string) => void): () => void {
  let stream: Stream, timer = 0, over = false;
  const connect = () => {
    stream = open(path, begin(), cause => {
      if (over) return;
      lost?.(cause || t("connection closed"));
      timer = window.setTimeout(connect, again);
    });
  };
  connect();
  return () => { over = true; stream.close(); clearTimeout(timer); };
}

interface Named { metadata: { uid: string; name: string; namespace: string } }

export interface Table<T> { items: Map<string, T>; synced: boolean; lost: string }

// useWatch follows all objects of a list. It renders at most once for each frame of the screen.
export function useWatch<T extends Named>(path: string, key: (o: T) => string): Table<T> {
  const [table, setTable] = useState<Table<T>>(() => frozen ? frozenTable(path, key) : { items: new Map(), synced: false, lost: "" });
  useEffect(() => {
    if (frozen) return;
    let frame = 0;
    const stop = keepOpen(path + (path.includes("?") ? "&" : "?") + "watch=true&allowWatchBookmarks=true", () => {
      const items = new Map<string, T>();
      let synced = false;
      const show = () => {
        frame ||= requestAnimationFrame(() => {
          frame = 0;
          if (synced) setTable({ items: new Map(items), synced, lost: "" });
        });
      };
      return lines(text => {
        const change = JSON.parse(text);
        if (change.type === "BOOKMARK") synced = true;
        else if (change.type === "DELETED") items.delete(key(change.object));
        else items.set(key(change.object), change.object);
        show();
      });
    }, lost => setTable(t => ({ ...t, lost })));
    return () => { stop(); cancelAnimationFrame(frame); };
  }, [path]);
  return table;
}

// frozenTable returns the objects of a watch in an exported page.
function frozenTable<T extends Named>(path: string, key: (o: T) => string): Table<T> {
  const kind = path.includes("/events") ? "/api/v1/events" : "/api/v1/pods";
  const name = new URLSearchParams(path.split("?")[1]).get("fieldSelector")?.split("=")[1];
  const all = ((frozen!.answers[kind] as { items?: T[] }).items ?? []).filter(o => {
    const object = (o as { involvedObject?: { name: string; namespace?: string } }).involvedObject;
    return !name || object?.name === name && path.includes(`/namespaces/${object.namespace}/`);
  });
  return { items: new Map(all.map(o => [key(o), o])), synced: true, lost: "" };
}

export interface Usage { cpu?: number; memory?: number }

const usageOf = (answer: unknown) => (answer as { pods?: Record<string, Usage> } | undefined)?.pods ?? {};

// useUsage follows what pods use, by UID.
export function useUsage(): Record<string, Usage> {
  const [all, setAll] = useState<Record<string, Usage>>(() => usageOf(frozen?.answers["/berth/v1/usage"]));
  useEffect(() => {
    if (frozen) return;
    return keepOpen("/berth/v1/usage", () => lines(text => setAll(usageOf(JSON.parse(text)))));
  }, []);
  return all;
}

// Changes counts the changes of what has no watch of its own.
export interface Changes { images?: number; starts?: number; topology?: number }

// useChanges follows these changes. The first line of a stream names everything, because a change may have been missed.
export function useChanges(): Changes {
  const [counts, setCounts] = useState<Changes>({});
  useEffect(() => {
    if (frozen) return;
    return keepOpen("/berth/v1/changes", () => lines(text => {
      const of: (keyof Changes)[] = JSON.parse(text).of;
      setCounts(c => ({ ...c, ...Object.fromEntries(of.map(name => [name, (c[name] ?? 0) + 1])) }));
    }));
  }, []);
  return counts;
}

// useNow renders again every so many milliseconds, for ages.
export function useNow(every: number): number {
  const [now, setNow] = useState(() => frozen ? Date.parse(frozen.at) : Date.now());
  useEffect(() => {
    if (frozen) return;
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}
