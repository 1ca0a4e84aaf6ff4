package eviction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-run/berth/internal/base/quantity"
)

// Amount is a quantity, or a share of a capacity.
type Amount struct {
	Quantity int64
	// Share is between 0 and 1. It is used if Quantity is 0. The kubelet has 32 bits for it, which its messages show.
	Share float32
	// text is the quantity as it was written: messages repeat its unit.
	text string
}

// Of returns the amount for a capacity.
func (a Amount) Of(capacity int64) int64 {
	if a.Quantity != 0 {
		return a.Quantity
	}
	return int64(float64(capacity) * float64(a.Share))
}

// String returns the amount for a capacity as messages show it.
func (a Amount) String(capacity int64) string {
	return cmp.Or(a.text, resource.NewQuantity(a.Of(capacity), resource.BinarySI).String())
}

// Threshold is the amount below which a signal is short.
type Threshold struct {
	Signal Signal
	Value  Amount
	// Grace is how long the signal must have been short before pods are evicted. A threshold without one is hard.
	Grace time.Duration
	// Minimum is the amount that an eviction frees beyond the threshold, so that the next one does not follow at once.
	Minimum Amount
}

// Hard reports whether pods are evicted at once.
func (t Threshold) Hard() bool { return t.Grace == 0 }

// Settings are the thresholds in a KubeletConfiguration. The keys of the maps are signals.
type Settings struct {
	// Hard, Soft and MinimumReclaim hold quantities or percentages of the capacity.
	Hard, Soft, MinimumReclaim map[string]string
	// SoftGracePeriod holds durations such as 1m30s. Each signal in Soft needs one.
	SoftGracePeriod map[string]string
	// Allocatable says that the memory of all pods together is limited. Then AllocatableMemoryAvailable has the hard
	// threshold of MemoryAvailable.
	Allocatable bool
}

// Parse returns the thresholds, hard ones first, each group in the order of Signals. The error of a field names it as
// KubeletConfiguration does. A threshold of 0% or 100% is none, as for the kubelet.
func Parse(s Settings) ([]Threshold, field.ErrorList) {
	p := parser{}
	hard := p.amounts("evictionHard", s.Hard, thresholdAmount)
	soft := p.amounts("evictionSoft", s.Soft, thresholdAmount)
	minimum := p.amounts("evictionMinimumReclaim", s.MinimumReclaim, minimumAmount)
	graces := p.graces(s.SoftGracePeriod)

	var all []Threshold
	for _, signal := range Signals() {
		if value, ok := hard[signal]; ok {
			all = append(all, Threshold{Signal: signal, Value: value, Minimum: minimum[signal]})
		}
	}
	i := slices.IndexFunc(all, func(t Threshold) bool { return t.Signal == MemoryAvailable })
	if s.Allocatable && i >= 0 {
		allocatable := all[i]
		allocatable.Signal = AllocatableMemoryAvailable
		all = slices.DeleteFunc(all, func(t Threshold) bool { return t.Signal == AllocatableMemoryAvailable })
		all = slices.Insert(all, i+1, allocatable)
	}
	for _, signal := range Signals() {
		value, ok := soft[signal]
		if !ok {
			continue
		}
		grace, ok := graces[signal]
		if !ok {
			p.invalid("evictionSoft", string(signal), s.Soft[string(signal)],
				"grace period must be specified for the soft eviction threshold "+string(signal)+
					": add it to evictionSoftGracePeriod")
		}
		all = append(all, Threshold{Signal: signal, Value: value, Grace: grace, Minimum: minimum[signal]})
	}
	return all, p.errors
}

// parser collects what is wrong in settings.
type parser struct{ errors field.ErrorList }

func (p *parser) invalid(name, key, value, problem string) {
	p.errors = append(p.errors, field.Invalid(field.NewPath(name).Key(key), value, problem))
}

// signals calls read for each key that is a signal, in the order of their names.
func (p *parser) signals(name string, texts map[string]string, read func(signal Signal, text string) error) {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if !slices.Contains(Signals(), Signal(key)) {
			p.errors = append(p.errors, field.NotSupported(field.NewPath(name), Signal(key), Signals()))
		} else if err := read(Signal(key), texts[key]); err != nil {
			p.invalid(name, key, texts[key], err.Error())
		}
	}
}

// amounts parses the values of a field. An amount of 0 is left out.
func (p *parser) amounts(name string, texts map[string]string,
	read func(Signal, string) (Amount, error)) map[Signal]Amount {
	all := map[Signal]Amount{}
	p.signals(name, texts, func(signal Signal, text string) error {
		amount, err := read(signal, text)
		if err == nil && amount != (Amount{}) {
			all[signal] = amount
		}
		return err
	})
	return all
}

func (p *parser) graces(texts map[string]string) map[Signal]time.Duration {
	all := map[Signal]time.Duration{}
	p.signals("evictionSoftGracePeriod", texts, func(signal Signal, text string) error {
		grace, err := time.ParseDuration(text)
		if err == nil && grace < 0 {
			err = fmt.Errorf("invalid eviction grace period specified: %s, must be a positive value", text)
		}
		all[signal] = grace
		return err
	})
	return all
}

func thresholdAmount(signal Signal, text string) (Amount, error) {
	if text == "0%" || text == "100%" {
		return Amount{}, nil
	}
	if strings.HasSuffix(text, "%") {
		share, err := percentage(text)
		switch {
		case err != nil:
		case share < 0:
			err = fmt.Errorf("eviction percentage threshold %s must be >= 0%%: %s", signal, text)
		case share > 1:
			err = fmt.Errorf("eviction percentage threshold %s must be <= 100%%: %s", signal, text)
		}
		return Amount{Share: share}, err
	}
	amount, err := amountOf(text)
	if err == nil && amount.Quantity <= 0 {
		err = fmt.Errorf("eviction threshold %s must be positive: %s", signal, text)
	}
	return amount, err
}

func minimumAmount(signal Signal, text string) (Amount, error) {
	if strings.HasSuffix(text, "%") {
		share, err := percentage(text)
		if err == nil && share <= 0 {
			err = fmt.Errorf("eviction percentage minimum reclaim %s must be positive: %s", signal, text)
		}
		return Amount{Share: share}, err
	}
	amount, err := amountOf(text)
	if err == nil && amount.Quantity < 0 {
		err = fmt.Errorf("negative eviction minimum reclaim specified for %s", signal)
	}
	return amount, err
}

func percentage(text string) (float32, error) {
	value, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 32)
	if err != nil || value != value { // not a number
		return 0, fmt.Errorf("%q is not a percentage, such as 5%%", text)
	}
	return float32(value) / 100, nil
}

func amountOf(text string) (Amount, error) {
	q, err := quantity.Parse(text)
	if err != nil {
		return Amount{}, fmt.Errorf("%q is neither a quantity, such as 100Mi, nor a percentage, such as 5%%: %w", text,
			err)
	}
	return Amount{Quantity: q.Value(), text: q.String()}, nil
}
