package wake

import "testing"

func TestWakesAreOneUntilReceived(t *testing.T) {
	s := New()
	select {
	case <-s.C():
		t.Fatal("a new signal is raised")
	default:
	}
	s.Wake()
	s.Wake()
	<-s.C()
	select {
	case <-s.C():
		t.Fatal("two calls of Wake were received twice")
	default:
	}
	s.Wake()
	<-s.C()
}
