// Requests and streams. A stream is a WebSocket, because a browser opens only a few connections to a server at a time.
import { useEffect, useState } from "preact/hooks";

export async function request(method: string, path: string, body?: unknown): Promise<Response> {
  const r = await fetch(path, { method, body: body === undefined ? undefined : JSON.stringify(body),
    headers: body === undefined ? {} : { "Content-Type": "application/json" } });
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

// open streams a path. data gets each part of the text. end is called once, with the cause, or "" for a regular end.
export function open(path: string, data: (text: string) => void, end: (cause: string) => void): Stream {
  const socket = new WebSocket(location.origin.replace("http", "ws") + "/live" + path);
  socket.binaryType = "arraybuffer";
  const decoder = new TextDecoder();
  let cause = "", closed = false;
  socket.onmessage = m => {
    if (typeof m.data === "string") cause = m.data;
    else if (!closed) data(decoder.decode(m.data, { stream: true }));
  };
  socket.onclose = e => { if (!closed) end(e.code === 1000 ? "" : cause || "connection closed"); };
  return { close() { closed = true; socket.close(); } };
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

export const again = 1000; // milliseconds until a lost stream is opened again

interface Named { metadata: { uid: string; name: string; namespace: string } }

export interface Table<T> { items: Map<string, T>; synced: boolean; lost: string }

// useWatch follows all objects of a list. It renders at most once for each frame of the screen.
export function useWatch<T extends Named>(path: string, key: (o: T) => string): Table<T> {
  const [table, setTable] = useState<Table<T>>({ items: new Map(), synced: false, lost: "" });
  useEffect(() => {
    let stream: Stream, timer = 0, frame = 0, over = false;
    const connect = () => {
      const items = new Map<string, T>();
      let synced = false;
      const show = () => {
        frame ||= requestAnimationFrame(() => {
          frame = 0;
          if (synced) setTable({ items: new Map(items), synced, lost: "" });
        });
      };
      stream = open(path + (path.includes("?") ? "&" : "?") + "watch=true&allowWatchBookmarks=true", lines(text => {
        const change = JSON.parse(text);
        if (change.type === "BOOKMARK") synced = true;
        else if (change.type === "DELETED") items.delete(key(change.object));
        else items.set(key(change.object), change.object);
        show();
      }), cause => {
        if (over) return;
        setTable(t => ({ ...t, lost: cause || "connection closed" }));
        timer = window.setTimeout(connect, again);
      });
    };
    connect();
    return () => { over = true; stream.close(); clearTimeout(timer); cancelAnimationFrame(frame); };
  }, [path]);
  return table;
}

export interface Usage { cpu?: number; memory?: number }

// useUsage follows what pods use, by UID.
export function useUsage(): Record<string, Usage> {
  const [all, setAll] = useState<Record<string, Usage>>({});
  useEffect(() => {
    let stream: Stream, timer = 0, over = false;
    const connect = () => {
      stream = open("/usage", text => setAll(JSON.parse(text)), () => {
        if (!over) timer = window.setTimeout(connect, again);
      });
    };
    connect();
    return () => { over = true; stream.close(); clearTimeout(timer); };
  }, []);
  return all;
}

// useNow renders again every so many milliseconds, for ages.
export function useNow(every: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}
