// The list of all pods.
import { Component } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { age, born, bytes, cpus, keyOf, Pod, Summary, summarize, typing } from "./kube";
import { Table, Usage, useNow } from "./live";
import { t } from "./words";

export const linkTo = (p: Pod) => `#/pod/${encodeURIComponent(p.metadata.namespace)}/${encodeURIComponent(p.metadata.name)}/Start`;

// summaries of pods. A pod of a watch is replaced, never changed.
const known = new WeakMap<Pod, Summary>();
function summaryOf(p: Pod): Summary {
  let s = known.get(p);
  if (!s) known.set(p, s = summarize(p));
  return s;
}

const falling = ["Restarts", "CPU", "Memory"]; // columns whose largest value comes first

type Order = "Name" | "Namespace" | "Ready" | "Status" | "Restarts" | "CPU" | "Memory" | "Age";

export function Pods({ table, usage }: { table: Table<Pod>; usage: Record<string, Usage> }) {
  const [filter, setFilter] = useState("");
  const [order, setOrder] = useState<Order>("Name");
  const [chosen, choose] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  const now = useNow(5000);
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = useMemo(() => [...table.items.values()].filter(p => {
    const m = p.metadata;
    const text = [keyOf(m), summaryOf(p).status, ...Object.entries(m.labels ?? {}).map(([k, v]) => k + "=" + v)].join(" ").toLowerCase();
    return words.every(w => text.includes(w));
  }).sort((a, b) => compare(a, b, order, usage)), [table, filter, order, usage]);
  useLayoutEffect(() => {
    const press = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      if (e.target instanceof HTMLSelectElement) return;
      const filtering = typing(e), control = e.target instanceof HTMLButtonElement || e.target instanceof HTMLAnchorElement ? e.target : undefined;
      // Enter is for the chosen pod after an arrow, and for a button or a link after Tab.
      if (e.key === "ArrowDown" || e.key === "ArrowUp") control?.blur();
      if (e.key === "Escape" && filtering) { setFilter(""); input.current?.blur(); }
      else if (e.key === "ArrowDown") { choose(c => Math.min(c + 1, shown.length - 1)); e.preventDefault(); }
      else if (e.key === "ArrowUp") { choose(c => Math.max(c - 1, 0)); e.preventDefault(); }
      else if (control) return;
      else if (e.key === "Enter" && shown[Math.max(chosen, 0)] && (filtering || chosen >= 0)) location.hash = linkTo(shown[Math.max(chosen, 0)]);
    };
    // When the key is up, its character is written already, so it does not become a part of the filter.
    const release = (e: KeyboardEvent) => {
      if (e.key === "/" && !typing(e)) input.current?.focus();
    };
    addEventListener("keydown", press);
    addEventListener("keyup", release);
    return () => { removeEventListener("keydown", press); removeEventListener("keyup", release); };
  }, [shown, chosen]);
  const columns: Order[] = ["Name", "Namespace", "Ready", "Status", "Restarts", "CPU", "Memory", "Age"];
  return <>
    <div class="tools">
      <input ref={input} id="filter" type="search" placeholder={t("Filter by name, namespace, status or label")}
        aria-label={t("Filter by name, namespace, status or label")} value={filter} onInput={e => { setFilter(e.currentTarget.value); choose(-1); }} />
      <span class="hint">{shown.length} / {table.items.size}</span>
    </div>
    <table class="pods">
      <thead><tr>{columns.map(c => <th key={c} aria-sort={c !== order ? "none" : falling.includes(c) ? "descending" : "ascending"}><button onClick={() => setOrder(c)}>{t(c)}</button></th>)}<th>{t("Why it waits")}</th></tr></thead>
      <tbody>{shown.map((p, i) => <PodRow key={p.metadata.uid} pod={p} chosen={i === chosen}
        cpu={cpus(usage[p.metadata.uid]?.cpu)} memory={bytes(usage[p.metadata.uid]?.memory)} age={age(born(p), now)} />)}</tbody>
    </table>
    {!shown.length && <p class="empty">{t(!table.synced ? "Loading" : filter ? "No pod matches the filter." : "No pods run here.")}</p>}
    <p class="hint keys">{t("Keys: / filter, arrows choose, Enter opens, Escape goes back, 1 to 7 choose a part, n shows the node, p the pods")}</p>
  </>;
}

function compare(a: Pod, b: Pod, order: Order, usage: Record<string, Usage>): number {
  const x = summaryOf(a), y = summaryOf(b), u = usage[a.metadata.uid], v = usage[b.metadata.uid];
  const by: Record<Order, () => number> = {
    Name: () => 0,
    Namespace: () => a.metadata.namespace.localeCompare(b.metadata.namespace),
    Ready: () => x.ready / x.total - y.ready / y.total,
    Status: () => x.status.localeCompare(y.status),
    Restarts: () => y.restarts - x.restarts,
    CPU: () => (v?.cpu ?? 0) - (u?.cpu ?? 0),
    Memory: () => (v?.memory ?? 0) - (u?.memory ?? 0),
    Age: () => born(b) - born(a),
  };
  return by[order]() || a.metadata.name.localeCompare(b.metadata.name) || a.metadata.namespace.localeCompare(b.metadata.namespace);
}

interface RowProps { pod: Pod; chosen: boolean; cpu: string; memory: string; age: string }

// PodRow is drawn again only after a change of what it shows, so that a tick costs little with many pods.
class PodRow extends Component<RowProps> {
  shouldComponentUpdate(next: RowProps) {
    const now = this.props;
    return next.pod !== now.pod || next.chosen !== now.chosen || next.cpu !== now.cpu || next.memory !== now.memory || next.age !== now.age;
  }

  render({ pod, chosen, cpu, memory, age }: RowProps) {
    const s = summaryOf(pod), m = pod.metadata;
    return <tr class={chosen ? "chosen" : ""} ref={chosen ? r => r?.scrollIntoView({ block: "nearest" }) : undefined}>
      <td><a href={linkTo(pod)}>{m.name}</a></td><td>{m.namespace}</td><td>{s.ready}/{s.total}</td>
      <td><span class={"status " + s.level}>{s.status}</span></td><td>{s.restarts}</td>
      <td>{cpu}</td><td>{memory}</td><td>{age}</td><td class="reason">{s.why}</td>
    </tr>;
  }
}
