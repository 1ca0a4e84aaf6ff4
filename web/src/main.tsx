import { render } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";
import "./style.css";
import { keyOf, Pod, typing } from "./kube";
import { frozen, useUsage, useWatch } from "./live";
import { NodePage, sections } from "./node";
import { parts, PodPage } from "./pod";
import { Pods } from "./pods";
import { currentLanguage, languages, load, save, setLanguage, t } from "./words";

function setColours(c: string) {
  document.documentElement.dataset.colours = c;
  save("colours", c);
}

function Page() {
  const [hash, setHash] = useState(location.hash);
  const [, draw] = useState(0);
  const pods = useWatch<Pod>("/api/v1/pods", p => keyOf(p.metadata));
  const usage = useUsage();
  const path = hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  const one = path[0] === "pod" && path.length >= 3, node = path[0] === "node";
  // The handlers are replaced together with what the page shows, so that no key meets a handler of an older page.
  useLayoutEffect(() => {
    const moved = () => setHash(location.hash);
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useLayoutEffect(() => {
    document.title = (one ? path[2] + " · " : node ? t("Node") + " · " : "") + "Berth";
    const press = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || typing(e)) return;
      if (e.key === "n") location.hash = "#/node";
      if (e.key === "p" || e.key === "Escape" && (one || node)) location.hash = "#/";
      const section = node && sections[Number(e.key) - 1];
      if (section) location.hash = "#/node/" + section;
      const part = one && parts[Number(e.key) - 1];
      if (part) location.hash = `#/pod/${encodeURIComponent(path[1])}/${encodeURIComponent(path[2])}/${part}`;
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [hash]);
  const pod = one ? pods.items.get(path[1] + "/" + path[2]) : undefined;
  return <>
    <div class="top">
      <a href="#/" class="brand">Berth</a> <a href="#/" class={node ? "" : "chosen"}>{t("Pods")}</a> <a href="#/node" class={node ? "chosen" : ""}>{t("Node")}</a> <span class="space" />
      <select aria-label={t("Language")} value={currentLanguage()} onChange={e => { setLanguage(e.currentTarget.value); draw(Date.now()); }}>
        {languages.map(l => <option key={l} value={l}>{l === "zh" ? "中文" : "English"}</option>)}
      </select>
      <select aria-label={t("Colours")} value={document.documentElement.dataset.colours} onChange={e => setColours(e.currentTarget.value)}>
        <option value="">◐</option><option value="dark">{t("Dark")}</option><option value="light">{t("Light")}</option>
      </select>
    </div>
    {frozen && <div class="frozen">{t("This is a picture of the node from")} {new Date(frozen.at).toLocaleString()} ({frozen.node}). {t("Values of environment variables, logs and what looks like a secret are left out.")}</div>}
    {pods.lost && <div class="lost" role="status">{t("The agent cannot be reached")}: {pods.lost} · {t("trying again")}</div>}
    <main>
      {node ? <NodePage pods={pods} section={sections.includes(path[1]) ? path[1] : "Map"} /> : !one ? <Pods table={pods} usage={usage} /> :
        !pod && !pods.synced ? <p class="empty">{t("Loading")}</p> :
          <PodPage pod={pod} usage={pod && usage[pod.metadata.uid]} part={parts.includes(path[3]) ? path[3] : "Start"} />}
    </main>
    {!frozen && <footer class="hint"><a href="/licences.txt">{t("licences")}</a></footer>}
  </>;
}

setLanguage(load("language") || (navigator.language.startsWith("zh") ? "zh" : "en"));
setColours(load("colours"));
render(<Page />, document.getElementById("page")!);
