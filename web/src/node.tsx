// The node: a map of its CPUs and devices, what it used over the last hours, its images, and how long starts take.
import { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Charts } from "./charts";
import { age, bytes, parse, Pod, took } from "./kube";
import { Changes, get, Table, useChanges, useNow } from "./live";
import { t } from "./words";

export const sections = ["Map", "Usage", "Images", "Starts"];

export function NodePage({ pods, section }: { pods: Table<Pod>; section: string }) {
  const changes = useChanges();
  return <>
    <nav role="tablist">
      {sections.map(s => <a key={s} role="tab" aria-selected={s === section} class={s === section ? "chosen" : ""} href={"#/node/" + s}>{t(s)}</a>)}
    </nav>
    {section === "Map" && <ResourceMap pods={pods} changes={changes} />}
    {section === "Usage" && <Charts />}
    {section === "Images" && <Images pods={pods} changes={changes} />}
    {section === "Starts" && <Starts changes={changes} />}
  </>;
}

// useAnswer requests a path again after each change of version. A burst of changes makes one request.
function useAnswer<T>(path: string, version: string): { answer?: T; problem: string } {
  const [state, setState] = useState<{ answer?: T; problem: string }>({ problem: "" });
  useEffect(() => {
    let over = false;
    const timer = setTimeout(() => get<T>(path).then(answer => { if (!over) setState({ answer, problem: "" }); },
      e => { if (!over) setState(s => ({ ...s, problem: e.message })); }), 100);
    return () => { over = true; clearTimeout(timer); };
  }, [path, version]);
  return state;
}

// Resources and images also get other names and users with containers: their ids and whether their pods are ready.
const versionOf = (pods: Table<Pod>) => useMemo(() => [...pods.items.values()].map(p => p.metadata.uid + p.status.phase +
  (p.status.containerStatuses ?? []).map(c => c.containerID + String(c.ready)).join()).join(), [pods]);

interface Holder { namespace?: string; pod?: string; uid: string; container?: string; cpus?: string; memory?: { nodes: number[]; resource: string; size: number }[]; devices?: { resource: string; ids: string[] }[] }
interface Cache { id: number; level: number; size?: number; cpus: string }
interface Topology {
  cpus: string; offlineCPUs?: string; reservedCPUs?: string; sharedCPUs: string; cpuPolicy: string; memoryPolicy: string; topologyPolicy: string;
  sockets: { id: number; cpus: string }[];
  nodes: { id: number; cpus: string; memory: number; hugePages?: { size: number; count: number }[]; distances?: { node: number; distance: number }[] }[];
  caches: Cache[]; lowerCaches: Cache[]; cores: { id: number; socket: number; node: number; cpus: string }[];
  devices: { resource: string; id: string; healthy: boolean; nodes?: number[]; holder?: Holder }[];
  holders: Holder[];
}

// list returns the CPUs of a list like 0-3,8.
function list(cpus = ""): number[] {
  return cpus.split(",").filter(Boolean).flatMap(part => {
    const [first, last] = part.split("-").map(Number);
    return Array.from({ length: (last ?? first) - first + 1 }, (_, i) => first + i);
  });
}

const holderName = (h: Holder) => (h.pod ? h.namespace + "/" + h.pod : t("an ended pod")) + (h.container ? " · " + h.container : "");
const colours = 8; // classes h0 to h7

function ResourceMap({ pods, changes }: { pods: Table<Pod>; changes: Changes }) {
  const { answer: m, problem } = useAnswer<Topology>("/api/berth/v1/topology", changes.topology + versionOf(pods));
  const [pointed, point] = useState("");
  if (!m) return <p class="empty">{problem || t("Loading")}</p>;
  // A container's own CPUs are named before those of its whole pod.
  const holders = [...m.holders ?? []].sort((a, b) => Number(!a.container) - Number(!b.container));
  const keys = [...new Set([...m.holders ?? [], ...(m.devices ?? []).flatMap(d => d.holder ?? [])].map(h => h.uid))];
  const held = new Map<number, Holder>();
  for (const h of holders) for (const c of list(h.cpus)) if (!held.has(c)) held.set(c, h);
  const reserved = new Set(list(m.reservedCPUs)), shared = new Set(list(m.sharedCPUs)), offline = new Set(list(m.offlineCPUs));
  const classOf = (h?: Holder) => h ? "h" + keys.indexOf(h.uid) % colours : "";
  const cpu = (c: number) => {
    const h = held.get(c);
    const state = h ? holderName(h) : reserved.has(c) ? t("reserved") : shared.has(c) ? t("shared") : offline.has(c) ? t("offline") : t("free");
    const text = "CPU " + c + ": " + state;
    return <span key={c} tabIndex={0} role="img" class={"cpu " + (classOf(h) || (reserved.has(c) ? "reserved" : shared.has(c) ? "shared" : "off"))} title={text} aria-label={text}
      onMouseEnter={() => point(text)} onFocus={() => point(text)}>{c}</span>;
  };
  const within = (cpus: string, node: string) => { const all = new Set(list(node)); return list(cpus).some(c => all.has(c)); };
  const cacheName = (c: Cache) => `L${c.level}` + (c.size ? " " + bytes(c.size) : "");
  const core = (cpus: string) => <span class="core" key={cpus} title={m.lowerCaches?.filter(c => within(c.cpus, cpus)).map(cacheName).join(", ")}>{list(cpus).map(cpu)}</span>;
  return <section>
    <p class="hint">{t("CPU policy")} {m.cpuPolicy} · {t("memory policy")} {m.memoryPolicy} · {t("topology policy")} {m.topologyPolicy} · {t("sockets")} {m.sockets?.length ?? 0}</p>
    <div class="map">
      {m.nodes.map(n => {
        const caches = (m.caches ?? []).filter(c => within(c.cpus, n.cpus));
        const cores = (m.cores ?? []).filter(c => c.node === n.id);
        const free = cores.filter(c => !caches.some(k => within(c.cpus, k.cpus)));
        const socket = cores[0]?.socket;
        return <div class="numa" key={n.id}>
          <h2>NUMA {n.id}{socket === undefined ? "" : " · " + t("socket") + " " + socket} <span class="hint">{bytes(n.memory)}
            {(n.hugePages ?? []).filter(h => h.count).map(h => ` · ${h.count} × ${bytes(h.size)}`)}</span></h2>
          {caches.map(k => <div class="cache" key={k.id}><span class="hint">{cacheName(k)}</span> {cores.filter(c => within(c.cpus, k.cpus)).map(c => core(c.cpus))}</div>)}
          {free.length > 0 && <div class="cache">{free.map(c => core(c.cpus))}</div>}
          <Memory holders={m.holders ?? []} node={n.id} classOf={classOf} />
          <Devices all={(m.devices ?? []).filter(d => d.nodes?.includes(n.id))} classOf={classOf} />
        </div>;
      })}
    </div>
    <p class="pointed" aria-live="polite">{pointed || t("Point at a CPU to see who has it.")}</p>
    <Devices all={(m.devices ?? []).filter(d => !d.nodes?.length)} classOf={classOf} />
    {offline.size > 0 && <p class="hint">{t("offline")}: {m.offlineCPUs}</p>}
    <table>
      <thead><tr><th>{t("Pod")}</th><th>{t("Container")}</th><th>CPU</th><th>{t("Memory")}</th><th>{t("Devices")}</th></tr></thead>
      <tbody>{(m.holders ?? []).map(h => <tr key={h.uid + h.container}>
        <td><span class={"key " + classOf(h)} /> {h.pod ? <a href={`#/pod/${encodeURIComponent(h.namespace!)}/${encodeURIComponent(h.pod)}/Containers`}>{h.namespace}/{h.pod}</a> : t("an ended pod")}</td>
        <td>{h.container || "-"}</td><td>{h.cpus || "-"}</td>
        <td>{h.memory?.map(b => `${b.resource} ${bytes(b.size)} (NUMA ${b.nodes.join(",")})`).join(", ") || "-"}</td>
        <td>{h.devices?.map(d => d.resource + ": " + d.ids.join(", ")).join("; ") || "-"}</td></tr>)}</tbody>
    </table>
    {!m.holders?.length && <p class="empty">{t("No pod holds CPUs, memory or devices for itself.")}</p>}
  </section>;
}

function Memory({ holders, node, classOf }: { holders: Holder[]; node: number; classOf: (h?: Holder) => string }) {
  const blocks = holders.flatMap(h => (h.memory ?? []).filter(b => b.nodes.includes(node)).map(b => ({ h, b })));
  if (!blocks.length) return null;
  return <div class="blocks">{blocks.map(({ h, b }, i) => <span key={i} class={"block " + classOf(h)} title={holderName(h)}>{b.resource} {bytes(b.size)}</span>)}</div>;
}

function Devices({ all, classOf }: { all: Topology["devices"]; classOf: (h?: Holder) => string }) {
  if (!all.length) return null;
  return <div class="blocks">{all.map(d => <span key={d.resource + d.id} class={"block " + classOf(d.holder) + (d.healthy ? "" : " unhealthy")}
    title={d.holder ? holderName(d.holder) : t(d.healthy ? "free" : "unhealthy")}>{d.resource} {d.id}</span>)}</div>;
}

interface Image { id: string; tags?: string[]; digests?: string[]; size: number; inUse?: boolean; pinned?: boolean; loaded?: boolean; lastUsed?: string }

function Images({ pods, changes }: { pods: Table<Pod>; changes: Changes }) {
  const version = changes.images + versionOf(pods);
  const { answer, problem } = useAnswer<{ items?: Image[] }>("/api/berth/v1/images", version);
  const usage = useAnswer<{ images: number; size: number; capacity?: number; available?: number }>("/api/berth/v1/images/usage", version).answer;
  const now = useNow(5000);
  if (!answer) return <p class="empty">{problem || t("Loading")}</p>;
  const all = [...answer.items ?? []].sort((a, b) => b.size - a.size);
  return <section>
    {usage && <p class="hint">{all.length} {t("Images")}, {bytes(usage.size)}{usage.capacity ? ` · ${bytes(usage.available)} ${t("free of")} ${bytes(usage.capacity)}` : ""}</p>}
    <table>
      <thead><tr><th>{t("Image")}</th><th>{t("Size")}</th><th>{t("Used")}</th><th>{t("Last use")}</th></tr></thead>
      <tbody>{all.map(i => <tr key={i.id}><td>{i.tags?.join(", ") || i.digests?.[0] || i.id}</td><td>{bytes(i.size)}</td>
        <td>{[i.inUse && t("in use"), i.pinned && t("pinned"), i.loaded && t("loaded")].filter(Boolean).join(", ") || "-"}</td>
        <td>{i.inUse ? "-" : age(parse(i.lastUsed), now)}</td></tr>)}</tbody>
    </table>
    {!all.length && <p class="empty">{t("No images.")}</p>}
  </section>;
}

interface Times { starts: number; since?: string; steps: { name: string; kind: string; count: number; p50: number; p99: number }[] }

function Starts({ changes }: { changes: Changes }) {
  const { answer, problem } = useAnswer<Times>("/starts", String(changes.starts));
  const now = useNow(5000);
  if (!answer) return <p class="empty">{problem || t("Loading")}</p>;
  if (!answer.starts) return <p class="empty">{t("No start is recorded.")}</p>;
  const longest = Math.max(...answer.steps.map(s => s.p99), 0.001);
  const bar = (ms: number, kind: string): ComponentChildren => <svg class="bars" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
    <rect class={"bar " + kind} x="0" y="1" height="8" width={Math.max(100 * ms / longest, 0.5)} /></svg>;
  return <section>
    <p class="hint">{t("The last starts that became ready")}: {answer.starts}{answer.since ? ", " + t("since") + " " + age(parse(answer.since), now) : ""}</p>
    <table class="starts">
      <thead><tr><th>{t("Step")}</th><th>{t("Count")}</th><th>p50</th><th>p99</th><th class="wide" /></tr></thead>
      <tbody>{answer.steps.slice(0, 60).map(s => <tr key={s.name + s.kind}>
        <td>{s.kind === "wait" ? t("waited for") + " " + s.name : s.name}</td><td>{s.count}</td><td>{took(s.p50)}</td><td>{took(s.p99)}</td><td class="wide">{bar(s.p99, s.kind)}</td></tr>)}</tbody>
    </table>
  </section>;
}
