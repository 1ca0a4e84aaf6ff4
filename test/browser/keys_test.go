package browser

import (
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/record/event"
)

// tabTo presses Tab until the focus is at an element that a condition about f, the element with the focus, is true for.
func (b *page) tabTo(condition string) {
	b.t.Helper()
	const most = 40 // more than the page has elements with a focus
	for range most {
		b.press(kb.Tab)
		var there bool
		b.run(chromedp.Evaluate(`(f => `+condition+`)(document.activeElement)`, &there))
		if there {
			return
		}
	}
	b.t.Fatalf("Tab does not lead to %s", condition)
}

// Arrows choose a pod, Enter opens it, and a column is sorted by its button.
func TestListByKeyboard(t *testing.T) {
	restarted := running("b")
	restarted.Status.ContainerStatuses[0].RestartCount = 7
	b := open(t, running("a"), restarted, running("c"))
	chosen := func(name string) {
		b.t.Helper()
		b.wait(`document.querySelector("tr.chosen a")?.textContent === ` + quote(name))
	}
	b.wait(`document.querySelectorAll("tbody tr").length === 3`)
	b.press(kb.ArrowDown)
	chosen("a")
	b.press(kb.ArrowDown)
	chosen("b")
	b.press(kb.ArrowDown)
	b.press(kb.ArrowDown) // the last one stays chosen
	chosen("c")
	b.press(kb.ArrowUp)
	chosen("b")

	// Enter on the button of a column sorts, and opens no pod.
	b.tabTo(`f.tagName === "BUTTON" && f.textContent === "Restarts"`)
	b.press(kb.Enter)
	b.wait(`[...document.querySelectorAll("tbody a")].map(a => a.textContent).join() === "b,a,c"`)
	b.wait(`[...document.querySelectorAll("th")].map(h => h.ariaSort).join() ===
		"none,none,none,none,descending,none,none,none,"`)
	b.wait(`location.hash === ""`)
	b.press(kb.ArrowUp) // leaves the button
	chosen("b")         // the first row now
	b.press(kb.ArrowDown)
	chosen("a")
	b.press(kb.Enter)
	b.wait(`location.hash === "#/pod/default/a/Start"`)
}

// Stop and restart need no mouse. The dialog keeps the focus, and gives it back.
func TestStopAndRestartByKeyboard(t *testing.T) {
	b := open(t, running("web"))
	applied := make(chan *corev1.Pod, 1)
	b.agent.OnApply(func(p *corev1.Pod) { applied <- p })
	b.run(chromedp.Evaluate(`location.hash = "#/pod/default/web/Volumes"`, nil))
	b.shows("/data")
	focus := func(text string) {
		b.t.Helper()
		b.wait(`document.activeElement.closest(".dialog") && document.activeElement.innerText === ` + quote(text))
	}
	back := chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(input.ModifierShift))
	b.tabTo(`f.tagName === "BUTTON" && f.textContent === "Delete"`)
	b.press(kb.Enter)
	focus("Cancel")
	b.press(kb.Tab)
	focus("Delete")
	b.press(kb.Tab) // from the last to the first
	b.wait(`document.activeElement.matches(".dialog input")`)
	b.run(back)
	focus("Delete")
	b.run(back)
	focus("Cancel")
	b.run(chromedp.MouseClickXY(5, 5)) // beside the dialog
	focus("Cancel")
	b.press("p") // a key of the page
	b.press(kb.Escape)
	b.wait(`!document.querySelector(".dialog") && location.hash === "#/pod/default/web/Volumes"`)
	b.wait(`document.activeElement.matches(".actions > button.danger")`)

	b.run(chromedp.Evaluate(`document.activeElement.blur()`, nil))
	b.tabTo(`f.tagName === "BUTTON" && f.textContent === "Stop"`)
	b.press(kb.Enter)
	focus("Cancel")
	b.press(kb.Tab)
	focus("Stop")
	b.press(kb.Enter)
	if d := (<-applied).Spec.ActiveDeadlineSeconds; d == nil || *d != 1 {
		t.Errorf("the deadline of a stopped pod is %v", d)
	}
	b.wait(`!document.querySelector(".dialog")`)
	b.agent.Change(types.NamespacedName{Namespace: "default", Name: "web"}, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, "DeadlineExceeded"
	})
	b.shows("Stopped")
	b.run(chromedp.Evaluate(`document.activeElement.blur()`, nil))
	b.tabTo(`f.tagName === "BUTTON" && f.textContent === "Restart"`)
	b.press(kb.Enter)
	focus("Cancel")
	b.press(kb.Tab)
	b.press(kb.Enter)
	if again := <-applied; again.Spec.ActiveDeadlineSeconds != nil {
		t.Errorf("restarted with the deadline %v", *again.Spec.ActiveDeadlineSeconds)
	}
	if n := len(b.agent.Deleted()); n != 0 {
		t.Errorf("%d deletions", n)
	}
	b.clean()
}

// Arrows walk through the runs and probes of a pod.
func TestStripByKeyboard(t *testing.T) {
	web := running("web")
	now := time.Now()
	web.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 3,
		Reason: "Error", StartedAt: metav1.NewTime(now.Add(-3 * time.Minute)),
		FinishedAt: metav1.NewTime(now.Add(-2 * time.Minute))}
	b := open(t, web)
	b.run(chromedp.Evaluate(`location.hash = "#/pod/default/web/Containers"`, nil))
	b.wait(`document.querySelectorAll(".strip .part").length === 2`)
	p := b.pod("web")
	for i, ok := range []bool{false, true} {
		b.agent.Lifelines.Probed(p, "app", "Readiness", ok, now.Add(time.Duration(i-60)*time.Second))
	}
	b.agent.Events.Event(event.PodRef(p), corev1.EventTypeWarning, "Unhealthy", "Readiness probe failed")
	b.wait(`document.querySelectorAll(".strip .part").length === 4`)
	b.tabTo(`f.matches(".strip svg")`)
	for _, step := range []struct{ key, shown string }{
		{kb.ArrowDown, "running"}, // the newest run
		{kb.ArrowLeft, "Error, exit code 3"},
		{kb.ArrowLeft, "Error, exit code 3"}, // the first one
		{kb.ArrowDown, "Readiness probe app: succeeds"},
		{kb.ArrowLeft, "Readiness probe app: fails"},
		{kb.ArrowRight, "Readiness probe app: succeeds"},
		{kb.ArrowUp, "running"},
	} {
		b.press(step.key)
		b.wait(`document.querySelector(".strip p").innerText.includes(` + quote(step.shown) + `)`)
		b.wait(`document.querySelectorAll(".strip .part.chosen").length === 1`)
	}
	b.clean()
}
