package browser

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/node/history"
	"github.com/berth-run/berth/internal/node/machine/machinetest"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/record/event"
)

const gpu corev1.ResourceName = "example.com/gpu"

// machine is a machine with 12 CPUs and a GPU. The pod with the UID web-uid holds two CPUs.
func machine(t *testing.T) (resource.Node, resource.Held) {
	t.Helper()
	return resource.Node{
			Machine: machinetest.Load(t, "1x6-smt-zen"),
			Policy:  resource.Policy{CPUs: true, ReservedCPUs: cpuset.New(0)},
			Devices: device.Inventory{gpu: {{ID: "0", Healthy: true, Nodes: topology.Of(0)}, {ID: "1"}}},
		}, resource.Held{"web-uid": {Containers: map[string]resource.Holding{"app": {
			CPUs:    cpuset.New(1, 7),
			Memory:  []memory.Block{{Nodes: topology.Of(0), Resource: corev1.ResourceMemory, Size: 1 << 30}},
			Devices: map[corev1.ResourceName][]device.ID{gpu: {"0"}},
		}}}}
}

// samples returns the last samples of a node, with a gap in the middle.
func samples(n int) []history.Sample {
	now := time.Now().Unix()
	all := make([]history.Sample, n)
	for i := range all {
		at := now - int64(n-1-i)*int64(history.Interval.Seconds())
		if i < n/2 {
			at -= 1800
		}
		wave := float32(i%40) / 40
		all[i] = history.Sample{Time: at}
		copy(all[i].Values[:], []float32{3 * wave, 4<<30 + wave*(1<<30), 60 << 30, 20 << 20 * wave, 5 << 20, 0.1 * wave,
			0.02, -1, 0.3 * wave, 0.1})
	}
	return all
}

func TestNodeShowsItsPartsAndWhoHoldsThem(t *testing.T) {
	web := running("web")
	web.UID = "web-uid"
	b := open(t, web)
	b.agent.SetResources(machine(t))
	b.shows("web")
	b.press("n")
	b.wait(`document.querySelectorAll(".cpu").length === 12`)
	for text, want := range map[string]string{"CPU 1": "default/web · app", "CPU 7": "default/web · app",
		"CPU 0": "reserved", "CPU 3": "shared"} {
		b.wait(`[...document.querySelectorAll(".cpu")].some(c => c.title === ` + quote(text+": "+want) + `)`)
	}
	// The two last-level caches have the CPUs of three cores each, and a core names its own caches.
	b.wait(`[...document.querySelectorAll(".cache")].map(c => c.querySelector(".hint").textContent + ": " +
		[...c.querySelectorAll(".cpu")].map(p => p.textContent)).join("; ") ===
		"L3 8.0 MiB: 0,6,1,7,2,8; L3 8.0 MiB: 3,9,4,10,5,11"`)
	b.wait(`[...document.querySelectorAll(".core")].every(c => c.title === "L1 32 KiB, L2 512 KiB")`)
	b.wait(`[...document.querySelectorAll(".block")].some(d => d.title === "default/web · app" && ` +
		`d.textContent.includes("example.com/gpu 0"))`)
	b.wait(`document.querySelector(".unhealthy").textContent === "example.com/gpu 1"`)
	b.run(chromedp.Evaluate(`document.querySelector(".cpu.h0").focus()`, nil)) // by keyboard
	b.shows("CPU 1: default/web · app")
	b.picture("node")

	// The map follows what pods hold, also without a change of a pod: here a device plugin has left.
	n, held := machine(t)
	n.Devices = nil
	b.withinASecond(`document.querySelector(".unhealthy").textContent === "example.com/gpu 0"`,
		func() { b.agent.SetResources(n, held) })
	b.withinASecond(`document.querySelectorAll(".cpu.h0").length === 0`, func() {
		b.agent.SetResources(n, resource.Held{})
		b.agent.Remove(types.NamespacedName{Namespace: "default", Name: "web"})
	})
	b.clean()
}

func TestUsageIsDrawnAndFollowed(t *testing.T) {
	b := open(t)
	all := samples(400)
	b.agent.SetHistory(all[:399]...)
	b.run(chromedp.Evaluate(`location.hash = "#/node/Usage"`, nil))
	b.wait(`document.querySelectorAll(".chart canvas").length === 5`)
	b.picture("usage")
	b.run(chromedp.Evaluate(`window.before = document.querySelector(".chart canvas").toDataURL(); true`, nil))
	b.withinASecond(`document.querySelector(".chart canvas").toDataURL() !== before`,
		func() { b.agent.SetHistory(all...) })
	b.run(chromedp.Evaluate(`(() => {
		before = document.querySelector(".chart canvas").toDataURL();
		const hours = document.querySelector("main select");
		hours.value = "24";
		return hours.dispatchEvent(new Event("change", {bubbles: true}));
	})()`, nil))
	b.wait(`document.querySelector(".chart canvas").toDataURL() !== before`)
	b.clean()
}

func TestImagesAndStarts(t *testing.T) {
	b := open(t, running("web"))
	used := metav1.NewTime(time.Now().Add(-time.Hour))
	b.agent.SetImages(api.Image{ID: "sha256:1", Tags: []string{"example.com/web:1"}, Size: 7 << 20, InUse: true},
		api.Image{ID: "sha256:2", Size: 1 << 20, LastUsed: &used})
	b.agent.SetTimelines(start("web"))
	b.shows("web")
	b.press("n")
	b.shows("CPU policy")
	b.press("3")
	b.shows("7.0 MiB")
	b.shows("in use")
	b.shows("60m")

	// Images and starts change without a change of a pod: a pull, the end of a start.
	b.withinASecond(`document.body.innerText.includes("example.com/pulled:1")`, func() {
		b.agent.SetImages(api.Image{ID: "sha256:3", Tags: []string{"example.com/pulled:1"}, Size: 7 << 20})
	})
	b.press("4")
	b.shows("551 ms") // the whole start
	b.withinASecond(`document.querySelector("table.starts tbody td:nth-child(2)").innerText === "2"`, func() {
		b.agent.SetTimelines(start("web"), start("again"))
	})
	b.shows("cri/RunPodSandbox")
	b.shows("waited for image")
	b.press(kb.Escape)
	b.wait(`location.hash === "#/"`)
	b.clean()
}

func TestStripShowsRestartsAndProbes(t *testing.T) {
	web := running("web")
	web.UID = "web-uid"
	now := time.Now()
	web.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(now.Add(-time.Minute))
	web.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 3,
		Reason: "Error", StartedAt: metav1.NewTime(now.Add(-3 * time.Minute)),
		FinishedAt: metav1.NewTime(now.Add(-2 * time.Minute))}
	b := open(t, web)
	key := types.NamespacedName{Namespace: "default", Name: "web"}
	b.run(chromedp.Evaluate(`location.hash = "#/pod/default/web/Containers"`, nil))
	b.wait(`document.querySelectorAll(".strip .part").length === 2`)
	b.withinASecond(`document.querySelectorAll(".strip .part").length === 5`, func() { // three results
		p := b.pod("web")
		for i, ok := range []bool{false, true, true, false} {
			b.agent.Lifelines.Probed(p, "app", "Readiness", ok, now.Add(time.Duration(i-60)*time.Second))
		}
		b.agent.Events.Event(event.PodRef(p), corev1.EventTypeWarning, "Unhealthy", "Readiness probe failed")
	})
	b.wait(`document.querySelectorAll(".strip .part.bad").length === 3`)
	b.shows("Readiness probe")
	b.click(".strip .part.bad") // points at it
	b.shows("Error, exit code 3")
	b.picture("containers")
	b.withinASecond(`document.querySelectorAll(".strip .part").length === 6`, func() {
		b.agent.Change(key, func(p *corev1.Pod) {
			st := &p.Status.ContainerStatuses[0]
			st.RestartCount = 2
			st.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137,
				StartedAt: st.State.Running.StartedAt, FinishedAt: metav1.Now()}
			st.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
		})
	})
	b.clean()
}

func TestStopKeepsThePodAndRestartBringsItBack(t *testing.T) {
	b := open(t, running("web"))
	b.agent.SetTimelines(start("web"))
	applied := make(chan *corev1.Pod, 1)
	b.agent.OnApply(func(p *corev1.Pod) { applied <- p })
	b.run(chromedp.Evaluate(`location.hash = "#/pod/default/web/Containers"`, nil))
	b.click(`.actions > button`)
	b.shows("The pod stays in the list")
	b.click(`#confirm`)
	stopped := <-applied
	if d := stopped.Spec.ActiveDeadlineSeconds; d == nil || *d != 1 {
		t.Errorf("the deadline of a stopped pod is %v", d)
	}
	b.agent.Change(types.NamespacedName{Namespace: "default", Name: "web"}, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, "DeadlineExceeded"
	})
	b.shows("Stopped")
	b.click(`.actions > button`) // now the restart
	b.shows("Replace the pod")
	b.click(`#confirm`)
	if again := <-applied; again.Spec.ActiveDeadlineSeconds != nil || again.Annotations["berth.run/stopped"] != "" {
		t.Errorf("restarted with deadline %v, annotations %v", again.Spec.ActiveDeadlineSeconds, again.Annotations)
	}
	b.clean()
}
