// The start of a pod as a picture: a row for each span, with its bar to scale.
import { useEffect, useState } from "preact/hooks";
import { Pod, Span, Timeline, parse, took } from "./kube";
import { get, useChanges } from "./live";
import { t } from "./words";

interface Row { span: Span; level: number; from: number; to: number; open: boolean; waits: Span[] }

const shortWait = 0.5; // milliseconds: a shorter wait found what it waited for already there

// rowsOf returns the spans in the order of their tree.
export function rowsOf(line: Timeline): Row[] {
  const spans = line.spans ?? [];
  if (!spans.length) return [];
  const ids = new Set(spans.map(s => s.id)), below = new Map<string, Span[]>();
  const stop = parse(line.end || line.read);
  const length = (s: Span) => (s.end ? parse(s.end) : stop) - parse(s.start);
  for (const s of spans.slice(1)) {
    if (s.kind === "wait" && s.end && length(s) < shortWait) continue;
    const parent = s.parent && ids.has(s.parent) ? s.parent : spans[0].id;
    below.set(parent, [...(below.get(parent) ?? []), s]);
  }
  const rows: Row[] = [], seen = new Set<string>();
  const walk = (s: Span, level: number) => {
    if (seen.has(s.id)) return;
    seen.add(s.id);
    const children = (below.get(s.id) ?? []).sort((a, b) => parse(a.start) - parse(b.start));
    rows.push({ span: s, level, from: parse(s.start), to: s.end ? parse(s.end) : stop, open: !s.end,
      waits: children.filter(c => c.kind === "wait") });
    children.forEach(c => walk(c, level + 1));
  };
  walk(spans[0], 0);
  return rows;
}

// causesOf returns the rows that a wait waited for: the span of the same name, or the pull that ended when it ended.
function causesOf(wait: Span, rows: Row[]): Row[] {
  const end = wait.end ? parse(wait.end) : Infinity;
  const work = rows.filter(r => r.span.kind !== "wait");
  const named = work.filter(r => r.span.name === wait.name);
  if (named.length || !wait.name.startsWith("image ")) return named;
  const pulls = work.filter(r => r.span.kind === "image" && r.from <= end && r.to >= parse(wait.start));
  return pulls.sort((a, b) => Math.abs(a.to - end) - Math.abs(b.to - end)).slice(0, 1);
}

const height = 22, names = 260, times = 76, width = 1000;

export const label = (s: Span) => s.kind === "wait" ? t("waited for") + " " + s.name : s.name;

function headline(line: Timeline): string {
  const length = took(parse(line.end || line.read) - parse(line.start));
  if (line.interrupted) return t("interrupted after") + " " + length;
  if (!line.end) return t("not ready yet") + ", " + length;
  if (line.err || line.reason) return t("failed after") + " " + length + ": " + (line.reason || line.err);
  return t("ready after") + " " + length;
}

export function Drawing({ line }: { line: Timeline }) {
  const [chosen, choose] = useState(0);
  const rows = rowsOf(line);
  if (!rows.length) return <p class="empty">{t("No start is recorded.")}</p>;
  const from = parse(line.start), total = Math.max(parse(line.end || line.read) - from, 0.001);
  const left = names + times, room = width - left - 8;
  const x = (at: number) => left + room * Math.min(Math.max((at - from) / total, 0), 1);
  const row = rows[Math.min(chosen, rows.length - 1)];
  // What the chosen row waits for, and what waits for it.
  const waits = row.span.kind === "wait" ? [row.span] : row.waits;
  const causes = waits.flatMap(w => causesOf(w, rows).map(cause => ({ wait: w, cause })));
  const waiters = rows.filter(r => r.waits.some(w => causesOf(w, rows).includes(row)));
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return <section class="waterfall">
    <h2>{headline(line)}</h2>
    <div class="scroll"><svg viewBox={`0 0 ${width} ${height * (rows.length + 1)}`} role="img" aria-label={headline(line)} tabindex={0} onKeyDown={e => {
      const step = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
      if (step) { choose(Math.min(Math.max(chosen + step, 0), rows.length - 1)); e.preventDefault(); }
    }}>
      {ticks.map(f => <g key={f}>
        <line class="tick" x1={left + room * f} x2={left + room * f} y1={height - 4} y2={height * (rows.length + 1)} />
        <text class="scale" x={left + room * f} y={height - 8} text-anchor={f === 0 ? "start" : f === 1 ? "end" : "middle"}>{took(total * f)}</text>
      </g>)}
      {rows.map((r, i) => {
        const y = height * (i + 1), failed = r.span.err || r.span.reason;
        const overlap = row.waits.some(w => w.id === r.span.id) || causes.some(c => c.cause === r) || waiters.includes(r);
        return <g key={r.span.id} class={"row" + (i === chosen ? " chosen" : "") + (overlap ? " waited" : "")}
          onMouseEnter={() => choose(i)} onClick={() => choose(i)}>
          <rect class="back" x="0" y={y} width={width} height={height} />
          <text x={6 + 14 * Math.min(r.level, 8)} y={y + 15} class={failed ? "failed" : ""}>{label(r.span).slice(0, 40 - 2 * Math.min(r.level, 8))}</text>
          <text x={left - 8} y={y + 15} text-anchor="end" class="time">{took(r.to - r.from)}{r.open ? "+" : ""}</text>
          <rect class={"bar " + (failed ? "bad" : r.span.kind ?? "step") + (r.open ? " open" : "")} x={x(r.from)} y={y + 4}
            width={Math.max(x(r.to) - x(r.from), 1.5)} height={height - 8} rx="2" />
        </g>;
      })}
      {causes.map(({ wait, cause }) => {
        const at = x(wait.end ? parse(wait.end) : row.to), y = (r: Row | undefined) => height * (rows.indexOf(r ?? row) + 1) + height / 2;
        return <path key={wait.id + cause.span.id} class="because" d={`M ${x(cause.to)} ${y(cause)} L ${at} ${y(rows.find(r => r.span.id === wait.id))}`} />;
      })}
    </svg></div>
    <Detail row={row} from={from} waiters={waiters} />
  </section>;
}

function Detail({ row, from, waiters }: { row: Row; from: number; waiters: Row[] }) {
  const s = row.span;
  return <div class="detail" aria-live="polite">
    <strong>{label(s)}</strong> <span class="time">{took(Math.max(row.from - from, 0))} → {took(Math.max(row.to - from, 0))} ({took(row.to - row.from)})</span>
    {row.waits.length > 0 && <div>{t("waited for")}: {row.waits.map(w => w.name + " " + took((w.end ? parse(w.end) : row.to) - parse(w.start))).join(", ")}</div>}
    {waiters.length > 0 && <div>{t("is waited for by")}: {waiters.map(w => label(w.span)).join(", ")}</div>}
    {(s.err || s.reason) && <div class="failed">{[s.reason, s.err].filter(Boolean).join(": ")}</div>}
    {s.attrs && <div class="attrs">{Object.entries(s.attrs).map(([k, v]) => k + "=" + v).join("  ")}</div>}
    <div class="hint">{t("Click a row or point at a bar to see what it waited for.")}</div>
  </div>;
}

export function Start({ pod }: { pod: Pod }) {
  const changes = useChanges();
  const [line, setLine] = useState<Timeline>();
  const [problem, setProblem] = useState("");
  const ready = pod.status.conditions?.find(c => c.type === "Ready")?.status;
  const m = pod.metadata;
  // A change of the pod is the sign of a new span, and the end of the start may come after it.
  const version = changes.starts + JSON.stringify(pod.status.conditions) + JSON.stringify(pod.status.containerStatuses);
  useEffect(() => {
    let over = false;
    get<Timeline>(`/api/berth/v1/pods/${m.namespace}/${m.name}/timeline`).then(
      l => { if (!over) { setLine(l); setProblem(""); } }, e => { if (!over) setProblem(e.message); });
    return () => { over = true; };
  }, [m.uid, ready, version]);
  return <>
    {line ? <Drawing line={line} /> : <p class="empty">{problem || t("Loading")}</p>}
  </>;
}
