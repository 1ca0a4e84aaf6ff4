// The parts of the Kubernetes API that the page shows, and what it derives from them.

export interface Meta {
  name: string; namespace: string; uid: string;
  creationTimestamp?: string; deletionTimestamp?: string;
  labels?: Record<string, string>; annotations?: Record<string, string>;
}

export interface State {
  waiting?: { reason?: string; message?: string };
  running?: { startedAt?: string };
  terminated?: { exitCode: number; reason?: string; message?: string; startedAt?: string; finishedAt?: string; signal?: number };
}

export interface ContainerStatus {
  name: string; ready: boolean; started?: boolean; restartCount: number; image: string; containerID?: string;
  state?: State; lastState?: State;
}

export interface Container {
  name: string; image: string; restartPolicy?: string;
  command?: string[]; args?: string[];
  resources?: { requests?: Record<string, string>; limits?: Record<string, string> };
  volumeMounts?: { name: string; mountPath: string; readOnly?: boolean; subPath?: string }[];
}

export interface Condition { type: string; status: string; reason?: string; message?: string; lastTransitionTime?: string }

export interface Pod {
  metadata: Meta;
  spec: {
    containers: Container[]; initContainers?: Container[]; ephemeralContainers?: Container[];
    nodeName?: string; terminationGracePeriodSeconds?: number;
    volumes?: ({ name: string } & Record<string, unknown>)[];
  };
  status: {
    phase?: string; reason?: string; message?: string; podIP?: string; qosClass?: string; startTime?: string;
    conditions?: Condition[]; containerStatuses?: ContainerStatus[]; initContainerStatuses?: ContainerStatus[];
    ephemeralContainerStatuses?: ContainerStatus[];
  };
}

export interface Event {
  metadata: Meta; type: string; reason: string; message: string; count?: number;
  firstTimestamp?: string; lastTimestamp?: string;
  involvedObject: { kind: string; name: string; namespace?: string; uid?: string; fieldPath?: string };
}

export interface Span {
  id: string; parent?: string; name: string; kind?: string; start: string; end?: string; err?: string; reason?: string;
  attrs?: Record<string, string>;
}

export interface Timeline {
  namespace: string; name: string; uid: string; start: string; end?: string; err?: string; reason?: string;
  interrupted?: boolean; read: string; spans?: Span[];
}

export const keyOf = (m: { namespace: string; name: string }) => m.namespace + "/" + m.name;

export const statuses = (p: Pod): ContainerStatus[] => [
  ...(p.status.initContainerStatuses ?? []), ...(p.status.containerStatuses ?? []),
  ...(p.status.ephemeralContainerStatuses ?? []),
];

export interface Summary { ready: number; total: number; status: string; restarts: number; level: "good" | "busy" | "bad" | "done"; why: string }

export const ended = (phase?: string) => phase === "Succeeded" || phase === "Failed";
const because = (...parts: (string | undefined)[]) => parts.filter(Boolean).join(": ");
const exit = (t: NonNullable<State["terminated"]>) =>
  t.reason || (t.signal ? "Signal:" + t.signal : "ExitCode:" + t.exitCode);

// summarize returns the columns of a pod as "berth get pods" shows them, and why the pod waits.
export function summarize(p: Pod): Summary {
  const sidecars = new Set((p.spec.initContainers ?? []).filter(c => c.restartPolicy === "Always").map(c => c.name));
  const phase = p.status.phase ?? "Pending";
  const s: Summary = { ready: 0, total: p.spec.containers.length + sidecars.size, status: p.status.reason || phase,
    restarts: 0, level: "busy", why: "" };
  let initializing = false;
  (p.status.initContainerStatuses ?? []).forEach((c, i) => {
    const state = c.state ?? {};
    s.restarts += c.restartCount;
    if (initializing || state.terminated?.exitCode === 0) return;
    if (sidecars.has(c.name) && c.started) {
      if (c.ready) s.ready++;
      return;
    }
    initializing = true;
    if (state.terminated) s.status = "Init:" + exit(state.terminated);
    else if (state.waiting?.reason && state.waiting.reason !== "PodInitializing") s.status = "Init:" + state.waiting.reason;
    else s.status = "Init:" + i + "/" + (p.spec.initContainers ?? []).length;
  });
  if (!initializing) {
    for (const c of [...(p.status.containerStatuses ?? [])].reverse()) {
      const state = c.state ?? {};
      s.restarts += c.restartCount;
      if (state.waiting?.reason) s.status = state.waiting.reason;
      else if (state.terminated) s.status = exit(state.terminated);
      else if (c.ready && state.running) s.ready++;
    }
  }
  if (p.metadata.deletionTimestamp && !ended(phase)) s.status = "Terminating";
  if (phase === "Failed" && p.metadata.annotations?.["berth.run/stopped"] !== undefined) {
    s.status = "Stopped";
    s.level = "done";
  } else if (phase === "Succeeded") s.level = "done";
  else if (phase === "Failed" || /Err|BackOff|Crash|Rejected|Invalid/.test(s.status)) s.level = "bad";
  else if (s.status === "Running" && s.ready === s.total) s.level = "good";
  s.why = s.level === "good" || s.level === "done" ? "" : why(p);
  return s;
}

// why returns what a pod waits for, or why it failed: the most specific reason that its status has.
function why(p: Pod): string {
  if (ended(p.status.phase)) return because(p.status.reason, p.status.message);
  for (const c of statuses(p)) {
    const w = c.state?.waiting;
    if (w?.reason && !["PodInitializing", "ContainerCreating"].includes(w.reason)) return c.name + ": " + because(w.reason, w.message);
  }
  for (const type of ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"]) {
    const c = p.status.conditions?.find(c => c.type === type);
    if (c?.status === "False" && (c.message || c.reason)) return because(c.reason, c.message);
  }
  return because(p.status.reason, p.status.message);
}

// typing reports whether a key is for the element that has the focus.
export const typing = (e: KeyboardEvent) => e.target instanceof HTMLInputElement || e.target instanceof HTMLTextAreaElement || e.target instanceof HTMLSelectElement;

export const parse = (time?: string) => time ? Date.parse(time) : NaN;
export const born = (p: Pod) => parse(p.metadata.creationTimestamp ?? p.status.startTime);

// age returns a duration like kubectl's: 45s, 12m, 5h, 3d.
export function age(from: number, now: number): string {
  const s = Math.max(0, Math.floor((now - from) / 1000));
  if (Number.isNaN(s)) return "-";
  if (s < 120) return s + "s";
  if (s < 7200) return Math.floor(s / 60) + "m";
  if (s < 172800) return Math.floor(s / 3600) + "h";
  return Math.floor(s / 86400) + "d";
}

export function bytes(n?: number): string {
  if (n === undefined) return "-";
  for (const unit of ["B", "KiB", "MiB"]) {
    if (n < 1024) return (n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)) + " " + unit;
    n /= 1024;
  }
  return n.toFixed(1) + " GiB";
}

export const cpus = (nano?: number) => nano === undefined ? "-" : (nano / 1e6).toFixed(nano < 1e7 ? 1 : 0) + "m";

export function took(ms: number): string {
  if (ms < 1) return ms.toFixed(2) + " ms";
  if (ms < 10) return ms.toFixed(1) + " ms";
  if (ms < 1000) return ms.toFixed(0) + " ms";
  if (ms < 100000) return (ms / 1000).toFixed(1) + " s";
  return age(0, ms);
}
