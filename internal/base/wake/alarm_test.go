package wake

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAlarmWakesAtItsLastTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAlarm()
		defer a.Stop()
		<-a.C() // the first pass
		began := time.Now()
		a.Set(began.Add(time.Hour), began)
		a.Set(began.Add(time.Minute), began)
		<-a.C()
		if after := time.Since(began); after != time.Minute {
			t.Errorf("woken after %v, want 1m", after)
		}
		a.Set(time.Now().Add(time.Minute), time.Now())
		a.Set(time.Time{}, time.Now())
		select {
		case <-a.C():
			t.Error("an alarm without a time woke the loop")
		case <-time.After(time.Hour):
		}
	})
}
