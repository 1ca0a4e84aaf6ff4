// When the containers of a pod ran, and what their probes found: a row each, to scale.
import { useEffect, useState } from "preact/hooks";
import { Event, parse, Pod, took } from "./kube";
import { get, useWatch } from "./live";
import { t } from "./words";

interface Instance { start: string; end?: string; exitCode?: number; reason?: string }
interface Probe { kind: string; results: { at: string; ok: boolean }[]; last: string }
interface Lifeline { since: string; containers: { name: string; instances?: Instance[]; probes?: Probe[] }[] }
interface Part { from: number; to: number; level: string; text: string }
interface Row { label: string; parts: Part[] }

const time = (at: number) => new Date(at).toLocaleTimeString();

function rowsOf(line: Lifeline, now: number): Row[] {
  return line.containers.flatMap(c => {
    const runs = (c.instances ?? []).map((i): Part => {
      const from = parse(i.start), to = i.end ? parse(i.end) : now;
      const end = i.end ? `${i.reason ?? t("ended")}, ${t("exit code")} ${i.exitCode ?? 0}` : t("running");
      return { from, to, level: !i.end ? "good" : i.exitCode ? "bad" : "done", text: `${c.name}: ${time(from)}, ${took(to - from)}, ${end}` };
    });
    const probes = (c.probes ?? []).map((p): Row => ({ label: t(p.kind + " probe"), parts: p.results.map((r, i): Part => {
      const from = parse(r.at), to = i + 1 < p.results.length ? parse(p.results[i + 1].at) : parse(p.last);
      return { from, to, level: r.ok ? "good" : "bad", text: `${t(p.kind + " probe")} ${c.name}: ${t(r.ok ? "succeeds" : "fails")}, ${time(from)} – ${time(to)}` };
    }) }));
    return [{ label: c.name, parts: runs }, ...probes];
  });
}

// move returns the bar beside the chosen one. The first key chooses the newest run. Another row begins with its newest bar.
function move(rows: Row[], at: [number, number] | undefined, down: number, right: number): [number, number] | undefined {
  const filled = rows.flatMap((r, i) => r.parts.length ? [i] : []);
  const now = at && filled.indexOf(at[0]);
  if (at === undefined || now === undefined || now < 0) return [filled[0], rows[filled[0]].parts.length - 1];
  const row = filled[Math.min(Math.max(now + down, 0), filled.length - 1)], last = rows[row].parts.length - 1;
  return [row, row === at[0] ? Math.min(Math.max(at[1] + right, 0), last) : last];
}

const height = 20, names = 170, width = 1000;

export function Strip({ pod, now }: { pod: Pod; now: number }) {
  const m = pod.metadata;
  const [line, setLine] = useState<Lifeline>();
  const [chosen, choose] = useState<[number, number]>(); // the row, and the bar in it
  // A failure of a probe is an event, and a change of readiness or a restart is a change of the pod.
  const events = useWatch<Event>(`/api/v1/namespaces/${m.namespace}/events?fieldSelector=` + encodeURIComponent("involvedObject.name=" + m.name), e => e.metadata.name);
  const version = JSON.stringify([pod.status.containerStatuses, pod.status.initContainerStatuses]) + [...events.items.values()].map(e => e.count).join();
  useEffect(() => {
    let over = false;
    get<Lifeline>(`/api/berth/v1/pods/${m.namespace}/${m.name}/lifeline`).then(l => { if (!over) setLine(l); }, () => { /* the pod has just begun */ });
    return () => { over = true; };
  }, [m.uid, version]);
  const rows = line ? rowsOf(line, now) : [];
  const press = (e: KeyboardEvent) => {
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[e.key] ?? [0, 0];
    if (!down && !right) return;
    e.preventDefault();
    choose(at => move(rows, at, down, right));
  };
  const all = rows.flatMap(r => r.parts);
  if (!all.length) return null;
  const from = Math.min(...all.map(p => p.from)), total = Math.max(now - from, 1);
  const x = (at: number) => names + (width - names) * Math.min(Math.max((at - from) / total, 0), 1);
  return <section class="strip">
    <h2>{t("Runs and probes")} <span class="hint">{time(from)} – {time(now)}</span></h2>
    <div class="scroll"><svg viewBox={`0 0 ${width} ${height * rows.length}`} role="img" aria-label={t("Runs and probes")} tabindex={0} onKeyDown={press}>
      {rows.map((r, i) => <g key={i}>
        <text x="0" y={height * i + 14}>{r.label.slice(0, 26)}</text>
        <line class="tick" x1={names} x2={width} y1={height * i + height / 2} y2={height * i + height / 2} />
        {r.parts.map((p, k) => <rect key={k} class={"part " + p.level + (i === chosen?.[0] && k === chosen[1] ? " chosen" : "")} x={x(p.from)} y={height * i + 3} height={height - 6} width={Math.max(x(p.to) - x(p.from), 2)}
          onMouseEnter={() => choose([i, k])}><title>{p.text}</title></rect>)}
      </g>)}
    </svg></div>
    <p class="hint" aria-live="polite">{chosen && rows[chosen[0]]?.parts[chosen[1]]?.text || t("Point at a bar, or choose one with the arrows. Results of probes are kept since the agent's start.")}</p>
  </section>;
}
