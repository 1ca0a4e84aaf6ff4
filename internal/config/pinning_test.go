package config

import (
	"testing"
	"time"
)

func TestAuditFollowsThePeriodOfTheStaticPolicyOnly(t *testing.T) {
	for pinning, want := range map[*Pinning]time.Duration{
		{CPUs: true, ReconcilePeriod: time.Minute}:   time.Minute,
		{ReconcilePeriod: time.Minute}:               0,
		{Memory: true, ReconcilePeriod: time.Minute}: 0,
	} {
		if got := pinning.Audit(); got != want {
			t.Errorf("%+v: %v, want %v", *pinning, got, want)
		}
	}
}
