package browser

import (
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// screen waits until the terminal shows a text.
func (b *page) screen(text string) {
	b.t.Helper()
	b.wait(`document.querySelector(".xterm-rows")?.textContent.includes(` + quote(text) + `)`)
}

// write types into the terminal as a keyboard does: the character comes with its key, and a page that has used the key
// does not get the character too.
func (b *page) write(text string) {
	b.t.Helper()
	for _, r := range text {
		for _, e := range kb.Encode(r) {
			if e.Type == input.KeyChar {
				continue
			}
			if e.Type != input.KeyUp {
				e.Type, e.Text = input.KeyDown, string(r)
			}
			b.run(e)
		}
	}
}

func TestShellInTheBrowser(t *testing.T) {
	web := running("web")
	web.UID = "web-uid"
	b := open(t, web)
	b.run(chromedp.Evaluate(`location.hash = "#/pod/default/web/Shell"`, nil))
	b.screen("$")
	b.wait(`document.activeElement.classList.contains("xterm-helper-textarea")`)

	// Keys of the page are keys of the shell here.
	b.write("echo 2n/\r")
	b.screen("echo 2n/")
	b.press(kb.Escape)
	b.wait(`location.hash === "#/pod/default/web/Shell"`)
	b.write("\r")

	// The shell has the size of the picture, also after a change.
	b.write("size\r")
	b.wait(`/[1-9]\d+x[1-9]\d*/.test(document.querySelector(".xterm-rows").textContent)`)
	b.run(chromedp.EmulateViewport(500, 900))
	b.write("size 70\r")
	b.wait(`[...document.querySelector(".xterm-rows").children].some(r => /^[1-6]\dx\d/.test(r.textContent))`)
	b.run(chromedp.EmulateViewport(1280, 900))

	// Colours work although the policy forbids inline styles, and texts stay texts.
	b.write(`raw \x1b[38;2;255;0;0mscarlet\x1b[0m \x1b[32mgreen\x1b[0m <img src=x onerror=window.hacked=1>` + "\r")
	b.screen("scarlet green <img src=x")
	b.wait(`[...document.querySelectorAll(".xterm-rows span")].some(s =>
		getComputedStyle(s).color === "rgb(255, 0, 0)")`)
	b.wait(`!("hacked" in window) && !document.querySelector(".xterm img")`)

	// Shift-Escape leaves the terminal.
	b.run(chromedp.KeyEvent(kb.Escape, chromedp.KeyModifiers(input.ModifierShift)))
	b.wait(`document.activeElement === document.body`)
	b.click(".shell")
	b.write("exit 3\r")
	b.shows("command ended with exit code 3")
	b.click(".tools button")
	b.screen("$")
	b.write(`raw \x1b[32mready\x1b[0m to \x1b[1;34mserve\x1b[0m` + "\r")
	b.screen("ready to serve")
	b.picture("shell")
	b.write("exit 0\r")
	b.shows("The shell has ended.")
	b.clean()
}
