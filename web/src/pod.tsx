// One pod: its start, containers, logs, events, volumes and YAML, and what can be done with it.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { age, bytes, Container, cpus, ended, Event, parse, Pod, State, statuses, summarize } from "./kube";
import { request, Usage, useNow, useWatch } from "./live";
import { Logs } from "./logs";
import { Shell } from "./shell";
import { Strip } from "./strip";
import { Explanation, Verdict } from "./verdict";
import { Start } from "./waterfall";
import { t } from "./words";

export const parts = EXPORTED ? ["Start", "Containers", "Events", "Volumes", "YAML"] : ["Start", "Containers", "Logs", "Shell", "Events", "Volumes", "YAML"];

export function PodPage({ pod, usage, part }: { pod?: Pod; usage?: Usage; part: string }) {
  const now = useNow(1000);
  if (!pod) return <p class="empty">{t("This pod does not exist any more.")} <a href="#/">{t("Back to all pods")}</a></p>;
  const s = summarize(pod), m = pod.metadata;
  const at = `#/pod/${encodeURIComponent(m.namespace)}/${encodeURIComponent(m.name)}/`;
  return <>
    <header class="pod">
      <a href="#/" aria-label={t("Back to all pods")}>←</a>
      <h1>{m.name}</h1> <span class="hint">{m.namespace}</span>
      <span class={"status " + s.level}>{s.status}</span>
      <span>{s.ready}/{s.total}</span>
      <span>{t("Restarts")} {s.restarts}</span>
      <span>{cpus(usage?.cpu)} · {bytes(usage?.memory)}</span>
      <span>{age(parse(m.creationTimestamp ?? pod.status.startTime), now)}</span>
      <span>{pod.status.podIP}</span>
      {!EXPORTED && <Actions pod={pod} />}
    </header>
    {s.why && <Why pod={pod} why={s.why} />}
    <nav role="tablist">
      {parts.map(p => <a key={p} role="tab" aria-selected={p === part} class={p === part ? "chosen" : ""} href={at + p}>{t(p)}</a>)}
    </nav>
    {part === "Start" && <Start key={m.uid} pod={pod} />}
    {part === "Containers" && <Containers pod={pod} now={now} />}
    {part === "Logs" && <Logs key={m.uid} pod={pod} />}
    {part === "Shell" && <Shell key={m.uid} pod={pod} />}
    {part === "Events" && <Events pod={pod} now={now} />}
    {part === "Volumes" && <Volumes pod={pod} />}
    {part === "YAML" && <Yaml pod={pod} />}
  </>;
}

function Why({ pod, why }: { pod: Pod; why: string }) {
  const [said, setSaid] = useState<Explanation[]>();
  const [problem, setProblem] = useState("");
  const m = pod.metadata;
  const ask = () => request("POST", `/explain/${m.namespace}/${m.name}`, {}).then(r => r.json()).then(
    l => { setSaid(l.items ?? []); setProblem(""); }, e => setProblem(e.message));
  return <div class="why">{why} {!EXPORTED && pod.status.phase === "Pending" && <button onClick={ask}>{t("What admission says")}</button>}
    <div role="status">{said?.map(e => <Verdict key={e.namespace + "/" + e.name} all={e} />)}</div>
    {problem && <p class="failed">{problem}</p>}</div>;
}

// Actions has the buttons. Each asks first.
function Actions({ pod }: { pod: Pod }) {
  const [asking, ask] = useState("");
  const [grace, setGrace] = useState(String(pod.spec.terminationGracePeriodSeconds ?? 30));
  const [problem, setProblem] = useState("");
  const cancel = useRef<HTMLButtonElement>(null), dialog = useRef<HTMLDivElement>(null), opener = useRef<HTMLElement>();
  useLayoutEffect(() => { if (asking) cancel.current!.focus(); else opener.current?.focus(); }, [asking]);
  const open = (button: HTMLElement, what: string) => {
    opener.current = button;
    setProblem("");
    ask(what);
  };
  const m = pod.metadata;
  const act = () => {
    const call = asking !== "Delete" ? request("POST", `/${asking.toLowerCase()}/${m.namespace}/${m.name}?uid=${m.uid}`, {}) :
      request("DELETE", `/api/api/v1/namespaces/${m.namespace}/pods/${m.name}`, { preconditions: { uid: m.uid }, gracePeriodSeconds: Number(grace) });
    call.then(() => { ask(""); setProblem(""); }, e => setProblem(e.message));
  };
  const press = (e: KeyboardEvent) => {
    e.stopPropagation(); // a key is for the dialog alone
    if (e.key === "Escape") ask("");
    if (e.key !== "Tab") return;
    // Tab stays within the dialog.
    const all = [...dialog.current!.querySelectorAll<HTMLElement>("input, button")];
    const next = all.indexOf(document.activeElement as HTMLElement) + (e.shiftKey ? -1 : 1);
    if (all[next]) return;
    all.at(e.shiftKey ? -1 : 0)!.focus();
    e.preventDefault();
  };
  return <span class="actions">
    {!ended(pod.status.phase) && <button onClick={e => open(e.currentTarget, "Stop")}>{t("Stop")}</button>}
    <button onClick={e => open(e.currentTarget, "Restart")}>{t("Restart")}</button>
    <button onClick={e => open(e.currentTarget, "Delete")} class="danger">{t("Delete")}</button>
    {asking && <div class="veil" onKeyDown={press} onMouseDown={e => { if (e.target === e.currentTarget) e.preventDefault(); }}>
      <div class="dialog" ref={dialog} tabIndex={-1} role="alertdialog" aria-modal="true" aria-label={t(asking)}>
      <h2>{t(asking)}: {m.namespace}/{m.name}</h2>
      {asking === "Restart" ?
        <p>{t("Replace the pod by a new one with the same manifest? Its containers end within their grace period first.")}</p> : asking === "Stop" ?
        <p>{t("End the containers within their grace period? The pod stays in the list, and starts again with a restart.")}</p> :
        <p>{t("Delete the pod and its manifest? Its containers end within")} <input type="number" min="0" value={grace} onInput={e => setGrace(e.currentTarget.value)} /> {t("seconds")}</p>}
      {problem && <p class="failed">{problem}</p>}
      <button autofocus ref={cancel} onClick={() => ask("")}>{t("Cancel")}</button>
      <button class="danger" id="confirm" onClick={act}>{t(asking)}</button>
    </div></div>}
  </span>;
}

function stateText(s: State | undefined, now: number): string {
  if (s?.running) return t("running") + " " + t("since") + " " + age(parse(s.running.startedAt), now);
  if (s?.waiting) return [s.waiting.reason, s.waiting.message].filter(Boolean).join(": ");
  if (s?.terminated) {
    return [(s.terminated.reason ?? t("ended")) + ", " + t("exit code") + " " + s.terminated.exitCode + ", " +
      age(parse(s.terminated.finishedAt), now), s.terminated.message].filter(Boolean).join(": ");
  }
  return "-";
}

function Containers({ pod, now }: { pod: Pod; now: number }) {
  const known = statuses(pod);
  const kinds: [string, Container[]][] = [["init", pod.spec.initContainers ?? []], ["", pod.spec.containers],
    ["ephemeral", pod.spec.ephemeralContainers ?? []]];
  const list = (r?: Record<string, string>) => Object.entries(r ?? {}).map(([k, v]) => k + " " + v).join(", ") || "-";
  return <>
    <Strip pod={pod} now={now} />
    <table>
      <thead><tr><th>{t("Container")}</th><th>{t("Ready")}</th><th>{t("Restarts")}</th><th>{t("State")}</th><th>{t("Last end")}</th><th>{t("Image")}</th><th>{t("requests / limits")}</th></tr></thead>
      <tbody>{kinds.flatMap(([kind, all]) => all.map(c => {
        const s = known.find(k => k.name === c.name);
        const sidecar = kind === "init" && c.restartPolicy === "Always";
        return <tr key={c.name}><td>{c.name} <span class="hint">{sidecar ? t("sidecar") : kind && t(kind)}</span></td><td>{s?.ready ? "✓" : "–"}</td><td>{s?.restartCount ?? 0}</td>
          <td>{stateText(s?.state, now)}</td><td>{s?.lastState?.terminated ? stateText(s.lastState, now) : "-"}</td><td>{c.image}</td>
          <td>{list(c.resources?.requests)} / {list(c.resources?.limits)}</td></tr>;
      }))}</tbody>
    </table>
    <h2>{t("Conditions")}</h2>
    <table><tbody>{(pod.status.conditions ?? []).map(c => <tr key={c.type}><td>{c.type}</td><td>{c.status}</td><td>{age(parse(c.lastTransitionTime), now)}</td>
      <td>{[c.reason, c.message].filter(Boolean).join(": ")}</td></tr>)}</tbody></table>
  </>;
}

function Events({ pod, now }: { pod: Pod; now: number }) {
  const m = pod.metadata;
  const { items, synced } = useWatch<Event>(`/api/v1/namespaces/${m.namespace}/events?fieldSelector=` +
    encodeURIComponent("involvedObject.name=" + m.name), e => e.metadata.name);
  const all = [...items.values()].sort((a, b) => parse(b.lastTimestamp) - parse(a.lastTimestamp));
  if (!all.length) return <p class="empty">{t(synced ? "No events." : "Loading")}</p>;
  return <table>
    <thead><tr><th>{t("Last seen")}</th><th>{t("Type")}</th><th>{t("Reason")}</th><th>{t("Message")}</th></tr></thead>
    <tbody>{all.map(e => <tr key={e.metadata.name} class={e.type === "Warning" ? "warning" : ""}>
      <td>{age(parse(e.lastTimestamp), now)}{(e.count ?? 1) > 1 ? " ×" + e.count : ""}</td><td>{e.type}</td><td>{e.reason}</td><td>{e.message}</td></tr>)}</tbody>
  </table>;
}

function Volumes({ pod }: { pod: Pod }) {
  const volumes = pod.spec.volumes ?? [];
  const all = [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
  const objects = objectsOf(pod);
  return <>
    {!volumes.length ? <p class="empty">{t("No volumes.")}</p> : <table>
      <thead><tr><th>{t("Volume")}</th><th>{t("Kind")}</th><th>{t("Source")}</th><th>{t("Mounts")}</th></tr></thead>
      <tbody>{volumes.map(v => {
        const kind = Object.keys(v).find(k => k !== "name") ?? "emptyDir";
        const mounts = all.flatMap(c => (c.volumeMounts ?? []).filter(mount => mount.name === v.name)
          .map(mount => c.name + ":" + mount.mountPath + (mount.readOnly ? " (ro)" : "")));
        return <tr key={v.name}><td>{v.name}</td><td>{kind}</td><td class="source">{JSON.stringify(v[kind])}</td><td>{mounts.join(", ")}</td></tr>;
      })}</tbody>
    </table>}
    {objects.size > 0 && <>
      <h2>{t("Objects")}</h2>
      <table>
        <thead><tr><th>{t("Kind")}</th><th>{t("Name")}</th><th>{t("Used by")}</th></tr></thead>
        <tbody>{[...objects].map(([name, users]) => <tr key={name}>
          <td>{name.split("/")[0]}</td><td>{name.split("/")[1]}</td><td>{[...users].join(", ")}</td></tr>)}</tbody>
      </table>
    </>}
  </>;
}

// The fields that name an object: the field itself, and for some the field in it that has the name.
const references: Record<string, [string, string]> = {
  configMapKeyRef: ["ConfigMap", "name"], configMapRef: ["ConfigMap", "name"], configMap: ["ConfigMap", "name"],
  secretKeyRef: ["Secret", "name"], secretRef: ["Secret", "name"], secret: ["Secret", "secretName"],
  persistentVolumeClaim: ["PersistentVolumeClaim", "claimName"], imagePullSecrets: ["Secret", "name"],
};

// objectsOf returns the objects that a pod names, as kind/name, and the parts of the pod that use them.
function objectsOf(pod: Pod): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  const walk = (value: unknown, field: string, user: string) => {
    if (Array.isArray(value)) value.forEach(v => walk(v, field, user));
    else if (value && typeof value === "object") {
      const o = value as Record<string, unknown>, [kind, key] = references[field] ?? [];
      // A projected volume names its Secrets as other fields do.
      const name = kind && (o[key!] ?? o.name);
      if (name) found.set(kind + "/" + name, (found.get(kind + "/" + name) ?? new Set()).add(user));
      for (const k in o) walk(o[k], k, user);
    }
  };
  const spec = pod.spec as unknown as Record<string, unknown>;
  for (const c of [...(pod.spec.initContainers ?? []), ...pod.spec.containers]) walk(c, "", c.name);
  for (const v of pod.spec.volumes ?? []) walk(v, "", v.name);
  walk(spec.imagePullSecrets, "imagePullSecrets", "imagePullSecrets");
  return found;
}

function Yaml({ pod }: { pod: Pod }) {
  const [text, setText] = useState("");
  const m = pod.metadata;
  useEffect(() => {
    let over = false;
    request("GET", `/yaml/${m.namespace}/${m.name}`).then(r => r.text()).then(y => { if (!over) setText(y); },
      e => { if (!over) setText(e.message); });
    return () => { over = true; };
  }, [pod]);
  return <pre class="yaml" tabIndex={0}>{text || t("Loading")}</pre>;
}
