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
	s.Wake()
	s.Clear()
	s.Clear()
	select {
	case <-s.C():
		t.Fatal("a signal that was taken back is raised")
	default:
	}
}

func TestASetIsTakenOnce(t *testing.T) {
	s := NewSet[string]()
	s.Add("a")
	s.AddAll(map[string]bool{"a": true, "b": true})
	<-s.C()
	if keys := s.Take(); len(keys) != 2 || !keys["a"] || !keys["b"] {
		t.Errorf("took %v", keys)
	}
	if keys := s.Take(); len(keys) != 0 {
		t.Errorf("took %v again", keys)
	}
	s.Add("c")
	<-s.C()
}
