package wake

import "testing"

func TestBroadcastWakesEveryoneWhoWaits(t *testing.T) {
	var b Broadcast
	b.Wake() // nobody waits
	first, second := b.C(), b.C()
	select {
	case <-first:
		t.Fatal("a wake before C woke the reader of C")
	default:
	}
	b.Wake()
	<-first
	<-second
	select {
	case <-b.C():
		t.Error("C after Wake was woken by it")
	default:
	}
}
