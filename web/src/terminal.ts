// A terminal that shows a shell in a container. It is a file of its own, which the page loads with the first terminal.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import { start, Stream } from "./live";

const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const theme = () => ({ background: colour("--raised"), foreground: colour("--front"), cursor: colour("--front"),
  cursorAccent: colour("--raised"), selectionBackground: colour("--line") });

// shell opens a terminal in box. ended is called with the cause when the shell has ended, "" for exit code 0.
export function shell(box: HTMLElement, path: string, ended: (cause: string) => void): Stream {
  const terminal = new Terminal({ fontSize: 13, theme: theme(), fontFamily: "ui-monospace, monospace" });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(box);
  // Shift-Escape leaves the terminal, because Tab is a key of the shell.
  terminal.attachCustomKeyEventHandler((e: KeyboardEvent) => {
    if (!(e.key === "Escape" && e.shiftKey)) return true;
    if (e.type === "keydown") terminal.blur();
    return false;
  });
  const resized = () => stream.send(JSON.stringify({ columns: terminal.cols, rows: terminal.rows }));
  const encoder = new TextEncoder();
  const stream = start(path, { opened: resized, data: part => terminal.write(part), end: ended });
  terminal.onData((text: string) => stream.send(encoder.encode(text)));
  terminal.onBinary((text: string) => stream.send(Uint8Array.from(text, c => c.charCodeAt(0))));
  terminal.onResize(resized);
  fit.fit();
  const watcher = new ResizeObserver(() => fit.fit());
  watcher.observe(box);
  const coloured = () => { terminal.options.theme = theme(); };
  const dark = matchMedia("(prefers-color-scheme: dark)"), chosen = new MutationObserver(coloured);
  dark.addEventListener("change", coloured);
  chosen.observe(document.documentElement, { attributeFilter: ["data-colours"] });
  terminal.focus();
  return { close() {
    watcher.disconnect();
    chosen.disconnect();
    dark.removeEventListener("change", coloured);
    stream.close();
    terminal.dispose();
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter(s => !sheets.includes(s));
    sheets = [];
  } };
}

// The terminal writes <style> elements and style attributes of spans, which the content security policy forbids. It
// allows scripts to make style sheets and to set styles, so these calls do that instead. Nothing else makes <style>
// elements, which would have no effect.
let sheets: CSSStyleSheet[] = []; // of the terminal that is open

const create = document.createElement.bind(document);
document.createElement = (name: string, options?: ElementCreationOptions) => {
  if (name !== "style") return create(name, options);
  const sheet = new CSSStyleSheet(), e = create("template");
  sheets.push(sheet);
  document.adoptedStyleSheets.push(sheet);
  return Object.defineProperty(e, "textContent", { set(text: string) { sheet.replaceSync(text); } });
};

HTMLSpanElement.prototype.setAttribute = function (name: string, value: string) {
  if (name === "style") this.style.cssText = value;
  else HTMLElement.prototype.setAttribute.call(this, name, value);
};
