// A shell in a container.
import { useEffect, useRef, useState } from "preact/hooks";
import { Pod, statuses } from "./kube";
import { Stream } from "./live";
import { t } from "./words";

export function Shell({ pod }: { pod: Pod }) {
  const running = statuses(pod).filter(c => c.state?.running).map(c => c.name);
  const main = pod.spec.containers[0]?.name ?? "";
  const [chosen, choose] = useState(main);
  const [turn, setTurn] = useState(0); // counts the shells that were opened
  const [ended, setEnded] = useState<string>();
  const box = useRef<HTMLDivElement>(null);
  const container = running.includes(chosen) ? chosen : running[0];
  const m = pod.metadata;
  useEffect(() => {
    if (EXPORTED || !container) return;
    let stream: Stream | undefined, over = false;
    setEnded(undefined);
    if (!EXPORTED) import("./terminal").then(({ shell }) => {
      if (!over) stream = shell(box.current!, `/shell/${m.namespace}/${m.name}?container=` + encodeURIComponent(container), setEnded);
    }, e => setEnded(String(e)));
    return () => { over = true; stream?.close(); };
  }, [m.uid, container, turn]);
  if (!container) return <p class="empty">{t("No container runs.")}</p>;
  return <section>
    <div class="tools">
      <select aria-label={t("Container")} value={container} onChange={e => choose(e.currentTarget.value)}>
        {running.map(name => <option key={name}>{name}</option>)}
      </select>
      {ended === undefined ? <span class="hint">{t("Shift-Escape leaves the terminal.")}</span> : <>
        <button onClick={() => setTurn(turn + 1)}>{t("Open another shell")}</button>
        <span class={ended ? "failed" : "hint"} role="status">{t("The shell has ended.")} {ended}</span>
      </>}
    </div>
    <div class="shell" ref={box} key={container + turn} />
  </section>;
}
