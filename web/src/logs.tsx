// The log of a container: follow, search, the previous instance.
import { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Pod, statuses } from "./kube";
import { again, lines, open, Stream } from "./live";
import { t } from "./words";

const most = 5000; // lines that the page keeps

export function Logs({ pod }: { pod: Pod }) {
  const all = statuses(pod);
  const first = pod.spec.containers[0]?.name ?? "";
  const [container, setContainer] = useState(first);
  const [previous, setPrevious] = useState(false);
  const [follow, setFollow] = useState(true);
  const [search, setSearch] = useState("");
  const [text, setText] = useState<string[]>([]);
  const [problem, setProblem] = useState("");
  const box = useRef<HTMLDivElement>(null);
  const status = all.find(c => c.name === container);
  const m = pod.metadata;
  const instance = previous ? -1 : status?.restartCount ?? 0;
  const running = Boolean(status?.state?.running || status?.state?.terminated || (status?.restartCount ?? 0) > 0);

  useEffect(() => {
    let stream: Stream, frame = 0, timer = 0, over = false;
    const connect = () => {
      const kept: string[] = [];
      const query = new URLSearchParams({ container, tailLines: String(most), follow: String(!previous) });
      if (previous) query.set("previous", "true");
      setText([]);
      setProblem("");
      stream = open(`/api/v1/namespaces/${m.namespace}/pods/${m.name}/log?` + query, lines(line => {
        kept.push(line);
        if (kept.length > 2 * most) kept.splice(0, kept.length - most);
        frame ||= requestAnimationFrame(() => { frame = 0; setText(kept.slice(-most)); });
      }), (cause, lost) => {
        if (over) return;
        setProblem(cause);
        if (lost) timer = window.setTimeout(connect, again);
      });
    };
    connect();
    return () => { over = true; stream.close(); cancelAnimationFrame(frame); clearTimeout(timer); };
  }, [m.uid, container, previous, instance, running]);

  useEffect(() => {
    if (follow && !search && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, follow, search]);

  const wanted = search.toLowerCase();
  const shown = useMemo(() => wanted ? text.filter(l => l.toLowerCase().includes(wanted)) : text, [text, wanted]);
  return <section class="logs">
    <div class="tools">
      <select aria-label={t("Container")} value={container} onChange={e => setContainer(e.currentTarget.value)}>
        {(all.length ? all.map(c => c.name) : [first]).map(name => <option key={name}>{name}</option>)}
      </select>
      <label><input type="checkbox" checked={follow} onChange={e => setFollow(e.currentTarget.checked)} /> {t("Follow")}</label>
      <label><input type="checkbox" checked={previous} onChange={e => setPrevious(e.currentTarget.checked)} /> {t("Previous")}</label>
      <input type="search" placeholder={t("Search")} aria-label={t("Search")} value={search} onInput={e => setSearch(e.currentTarget.value)} />
      <span class="hint">{shown.length} {t(search ? "matches" : "lines")}</span>
    </div>
    <div class="log" ref={box} tabIndex={0} onScroll={e => {
      const b = e.currentTarget, end = b.scrollHeight - b.scrollTop - b.clientHeight < 24;
      if (end !== follow && !search) setFollow(end);
    }}>
      {shown.map((line, i) => <div key={i}>{wanted ? marked(line, wanted) : line || " "}</div>)}
      {!shown.length && !problem && <p class="empty">{t("The log is empty.")}</p>}
      {problem && <p class="failed">{problem}</p>}
    </div>
  </section>;
}

function marked(line: string, wanted: string) {
  const parts: ComponentChildren[] = [];
  const low = line.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, from)) {
    parts.push(line.slice(from, at), <mark>{line.slice(at, at + wanted.length)}</mark>);
    from = at + wanted.length;
  }
  return [...parts, line.slice(from)];
}
