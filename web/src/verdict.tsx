// What admission would decide about a pod now: the rules that object, and what a person can do.
import { bytes } from "./kube";
import { t } from "./words";

interface Answer { verdict: string; reason?: string; message?: string; until?: string }
interface Grant { container?: string; cpus?: string; memory?: { nodes: number[]; resource: string; bytes: number }[]; devices?: Record<string, string[]> }

export interface Explanation extends Answer { namespace: string; name: string; preempt?: string[]; rules?: (Answer & { rule: string })[]; gets?: Grant[] }

// The next step after a verdict. Rules that let a pod wait name their own.
const steps: Record<string, string> = {
  "admitted": "Admission lets the pod start. What it waits for comes later: look at its start and its events.",
  "not yet": "The pod starts by itself when this is free. To make room, stop a pod that holds it.",
  "blocked": "Change this node so that it can do this, or apply a manifest that does not ask for it.",
  "rejected": "Apply a changed manifest. If the node has changed, restart the pod.",
  "invalid": "Correct the manifest, and apply it again.",
};
const waits: Record<string, string> = {
  "runtimeClass": "Apply the RuntimeClass, or configure its handler in the runtime. The pod then starts by itself.",
  "manifestObjects": "Apply the object that the message names. The pod then starts by itself.",
  "nodeAffinity": "The pod starts by itself when the API server has answered.",
  "pressure": "Free memory or disk space on this node. The pod then starts by itself.",
  "name": "The pod starts by itself when the earlier pod of its name has ended. Nothing has to be done.",
};

export function Verdict({ all }: { all: Explanation }) {
  const rules = (all.rules ?? []).filter(r => r.verdict !== "admitted");
  // The strongest verdict is the answer, and of equal ones the first.
  const deciding = rules.find(r => r.verdict === all.verdict);
  const next = all.verdict === "not yet" && waits[deciding?.rule ?? ""] || steps[all.verdict];
  return <div class="verdict">
    <p><strong>{t(all.verdict)}</strong>{because(all)}</p>
    {all.preempt?.length ? <p>{t("These pods would end to make room")}: {all.preempt.join(", ")}</p> : null}
    {rules.length > 1 && <ul>{rules.map(r => <li key={r.rule}>{t("rule")} {r.rule}: {t(r.verdict)}{because(r)}</li>)}</ul>}
    {all.gets?.length ? <ul>{all.gets.map(g => <li key={g.container}>{t("would get")}: {grant(g)}</li>)}</ul> : null}
    {next && <p>{t("Next step")}: {t(next)}</p>}
  </div>;
}

function because(a: Answer): string {
  const text = [a.reason, a.message].filter(Boolean).join(": ");
  const until = a.until ? ` (${t("until")} ${new Date(a.until).toLocaleTimeString()})` : "";
  return (text && ": " + text) + until;
}

const grant = (g: Grant) => (g.container ? g.container + ": " : "") + [g.cpus && "CPU " + g.cpus,
  ...(g.memory ?? []).map(b => `${b.resource} ${bytes(b.bytes)} (NUMA ${b.nodes.join(",")})`),
  ...Object.entries(g.devices ?? {}).map(([name, ids]) => name + " " + ids.join(", "))].filter(Boolean).join("; ");
