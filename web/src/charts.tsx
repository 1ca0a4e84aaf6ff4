// What the node used over the last hours.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { bytes } from "./kube";
import { frozen, keepOpen, lines } from "./live";
import { t } from "./words";

interface History { intervalSeconds: number; fields: string[]; times: number[]; samples: number[][] }
type Column = (number | null)[];

// Data has a column for each field. Where samples are missing, it has a row without values.
export interface Data { times: number[]; columns: Record<string, Column> }

const none: Data = { times: [], columns: {} };

function extend(data: Data, h: History): Data {
  const times = [...data.times];
  const columns: Record<string, Column> = {};
  for (const f of h.fields) columns[f] = [...data.columns[f] ?? []];
  h.times.forEach((at, i) => {
    const last = times[times.length - 1];
    if (last !== undefined && at <= last) return;
    if (last !== undefined && at - last > 2.5 * h.intervalSeconds) {
      times.push(last + h.intervalSeconds);
      for (const f of h.fields) columns[f].push(null);
    }
    times.push(at);
    h.fields.forEach((f, k) => columns[f].push(h.samples[i][k] < 0 ? null : h.samples[i][k]));
  });
  return { times, columns };
}

function useHistory(): { data: Data; problem: string; known: boolean } {
  const [state, setState] = useState(() => ({ data: frozen ? extend(none, frozen.answers["/berth/v1/history"] as History) : none, problem: "", known: Boolean(frozen) }));
  useEffect(() => {
    if (frozen) return;
    return keepOpen("/berth/v1/history?follow=true", () => {
      let data = none;
      return lines(text => {
        data = extend(data, JSON.parse(text));
        setState({ data, problem: "", known: true });
      });
    }, problem => setState(s => ({ ...s, problem })));
  }, []);
  return state;
}

const percent = (n: number) => (100 * n).toFixed(n < 0.1 ? 1 : 0) + " %";
const perSecond = (n: number) => bytes(n) + "/s";
const plain = (n: number) => n.toFixed(n < 10 ? 2 : 1);

interface Picture { title: string; show: (n: number) => string; lines: [string, string, string][] } // field, name, colour
const pictures: Picture[] = [
  { title: "CPUs in use", show: plain, lines: [["cpu", "CPU", "--step"]] },
  { title: "Memory in use", show: bytes, lines: [["memory", "Memory", "--image"]] },
  { title: "Disk in use", show: bytes, lines: [["disk", "Disk", "--cri"]] },
  { title: "Disks", show: perSecond, lines: [["diskRead", "read", "--step"], ["diskWritten", "written", "--bad"]] },
  { title: "Pressure stall", show: percent, lines: [["stallCPU", "CPU", "--step"], ["stallMemory", "Memory", "--image"], ["stallIO", "Disk", "--cri"],
    ["stallMemoryFull", "Memory, all wait", "--busy"], ["stallIOFull", "Disk, all wait", "--bad"]] },
];

export function Charts() {
  const { data, problem, known } = useHistory();
  const [hours, setHours] = useState(6);
  if (!known) return <p class="empty">{problem || t("Loading")}</p>;
  if (!data.times.length) return <p class="empty">{t("No samples yet: the first comes within a minute.")}</p>;
  return <section>
    <div class="tools">
      <label>{t("Hours")} <select value={String(hours)} onChange={e => setHours(Number(e.currentTarget.value))}>
        {[1, 6, 24].map(n => <option key={n} value={String(n)}>{n}</option>)}
      </select></label>
    </div>
    <div class="charts">{pictures.map(p => <Chart key={p.title} picture={p} data={data} hours={hours} />)}</div>
  </section>;
}

function Chart({ picture, data, hours }: { picture: Picture; data: Data; hours: number }) {
  const box = useRef<HTMLDivElement>(null), plot = useRef<any>();
  const shown = useRef({ data, hours });
  shown.current = { data, hours };
  const table = () => [shown.current.data.times, ...picture.lines.map(([field]) => shown.current.data.columns[field] ?? [])];
  const zoom = () => {
    const last = shown.current.data.times.at(-1)!;
    plot.current?.setScale("x", { min: last - 3600 * shown.current.hours, max: last });
  };
  useEffect(() => {
    const draw = () => {
      if (!box.current) return; // the page has just removed the chart
      const style = getComputedStyle(document.documentElement), colour = (name: string) => style.getPropertyValue(name).trim();
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
      plot.current?.destroy();
      plot.current = new uPlot({
        width: box.current.clientWidth, height: 180, title: t(picture.title), cursor: { y: false },
        scales: { x: { time: true }, y: { range: (_: unknown, __: number, top: number) => [0, top > 0 ? top * 1.1 : 1] } },
        axes: [axis, { ...axis, size: 76, values: (_: unknown, all: number[]) => all.map(picture.show) }],
        series: [{ label: t("Time"), value: (_: unknown, at: number | null) => at === null ? "" : new Date(at * 1000).toLocaleTimeString() },
          ...picture.lines.map(([, name, stroke]) => ({ label: t(name), stroke: colour(stroke), width: 1.5, points: { show: false },
            value: (_: unknown, n: number | null) => n === null || n === undefined ? "-" : picture.show(n) }))],
      }, table(), box.current);
      zoom();
    };
    draw();
    const sized = new ResizeObserver(() => { if (box.current) plot.current?.setSize({ width: box.current.clientWidth, height: 180 }); });
    sized.observe(box.current!);
    const dark = matchMedia("(prefers-color-scheme: dark)"), chosen = new MutationObserver(draw);
    dark.addEventListener("change", draw);
    chosen.observe(document.documentElement, { attributeFilter: ["data-colours", "lang"] });
    return () => { sized.disconnect(); chosen.disconnect(); dark.removeEventListener("change", draw); plot.current?.destroy(); };
  }, []);
  useEffect(() => { plot.current?.setData(table()); zoom(); }, [data, hours]);
  return <div class="chart" ref={box} />;
}
