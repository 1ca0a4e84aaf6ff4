import { render } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";
import "./style.css";
import { keyOf, Pod } from "./kube";
import { useUsage, useWatch } from "./live";
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
  const one = path[0] === "pod" && path.length >= 3;
  // The handlers are replaced together with what the page shows, so that no key meets a handler of an older page.
  useLayoutEffect(() => {
    const moved = () => setHash(location.hash);
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useLayoutEffect(() => {
    document.title = (one ? path[2] + " · " : "") + "Berth";
    const press = (e: KeyboardEvent) => {
      if (!one || e.ctrlKey || e.metaKey || e.altKey || e.target instanceof HTMLInputElement) return;
      if (e.key === "Escape") location.hash = "#/";
      const part = parts[Number(e.key) - 1];
      if (part) location.hash = `#/pod/${encodeURIComponent(path[1])}/${encodeURIComponent(path[2])}/${part}`;
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [hash]);
  const pod = one ? pods.items.get(path[1] + "/" + path[2]) : undefined;
  return <>
    <div class="top">
      <a href="#/" class="brand">Berth</a> <a href="#/">{t("Pods")}</a> <span class="space" />
      <select aria-label={t("Language")} value={currentLanguage()} onChange={e => { setLanguage(e.currentTarget.value); draw(Date.now()); }}>
        {languages.map(l => <option key={l} value={l}>{l === "zh" ? "中文" : "English"}</option>)}
      </select>
      <select aria-label={t("Colours")} value={document.documentElement.dataset.colours} onChange={e => setColours(e.currentTarget.value)}>
        <option value="">◐</option><option value="dark">{t("Dark")}</option><option value="light">{t("Light")}</option>
      </select>
    </div>
    {pods.lost && <div class="lost" role="status">{t("The agent cannot be reached")}: {pods.lost} · {t("trying again")}</div>}
    <main>
      {!one ? <Pods table={pods} usage={usage} /> :
        !pod && !pods.synced ? <p class="empty">{t("Loading")}</p> :
          <PodPage pod={pod} usage={pod && usage[pod.metadata.uid]} part={parts.includes(path[3]) ? path[3] : "Start"} />}
    </main>
    <footer class="hint"><a href="/licences.txt">licences</a></footer>
  </>;
}

setLanguage(load("language") || (navigator.language.startsWith("zh") ? "zh" : "en"));
setColours(load("colours"));
render(<Page />, document.getElementById("page")!);
