package main

import (
	"fmt"
	"math"
	"runtime"
	"testing"
)

func TestRatesOfTSCAgree(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("this processor has no TSC")
	}
	var first, second float64
	for _, rate := range []*float64{&first, &second} {
		if _, err := fmt.Sscanf(rateOfTSC(), " tsc_early_khz=%f", rate); err != nil {
			t.Fatal(err)
		}
	}
	if math.Abs(first-second) > first/1000 {
		t.Errorf("rates of %.0f and %.0f kHz", first, second)
	}
}
