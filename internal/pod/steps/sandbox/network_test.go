package sandbox

import (
	"testing"

	"github.com/berth-run/berth/internal/cri"
)

func TestNotReadyIsInTheKubeletsWords(t *testing.T) {
	got := notReady(cri.Condition{Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"})
	want := "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady " +
		"message:cni plugin not initialized"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
