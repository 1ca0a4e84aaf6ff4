package powercut

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Prefix is how the lines of the machine begin on its console.
const Prefix = "powercut: "

// FaultNone is the Fault of a disk that was failing, when it is good again and everything was checked.
const FaultNone = "none"

// Refused begins the note on a change that failed while the disk did.
const Refused = "refused: "

// The stages of a machine, in their order.
const (
	StageAgent   = "agent"   // the agent starts
	StageChecked = "checked" // everything confirmed is there, and its pods run
	StageDone    = "done"    // the machine may be switched off
)

// Line is one report of the machine.
type Line struct {
	// Begin and Confirm are a change of Name to Value. The value of a thing that does not exist is empty.
	Begin   bool   `json:"begin,omitempty"`
	Confirm bool   `json:"confirm,omitempty"`
	Name    string `json:"name,omitempty"`
	Value   string `json:"value,omitempty"`
	Stage   string `json:"stage,omitempty"`
	Fault   string `json:"fault,omitempty"`  // what the disk does from now on
	Failed  string `json:"failed,omitempty"` // what is wrong; the machine stops
	Note    string `json:"note,omitempty"`
}

// String is the line as the machine prints it.
func (l Line) String() string {
	text, _ := json.Marshal(l) // strings and booleans
	return Prefix + string(text)
}

// Parse reads a line of the console. It returns false for a line of the kernel, or a part of a line.
func Parse(text string) (Line, bool) {
	_, text, ok := strings.Cut(text, Prefix)
	var l Line
	return l, ok && json.Unmarshal([]byte(text), &l) == nil
}

// Ledger has the values that each thing may have, by its name.
type Ledger map[string][]string

// Read follows a line of the machine.
func (l Ledger) Read(line Line) {
	switch {
	case line.Begin:
		if len(l[line.Name]) == 0 {
			l[line.Name] = []string{""}
		}
		if !slices.Contains(l[line.Name], line.Value) {
			l[line.Name] = append(l[line.Name], line.Value)
		}
	case line.Confirm:
		l[line.Name] = []string{line.Value}
	}
}

// Check compares the values that were found with the ledger. A name that is not in found has no value. The error names
// every thing that is lost, old or unknown.
func (l Ledger) Check(found map[string]string) error {
	var wrong []string
	for name, values := range l {
		if got := found[name]; !slices.Contains(values, got) {
			wrong = append(wrong, fmt.Sprintf("%s is %q, want one of %q", name, got, values))
		}
	}
	for name, got := range found {
		if len(l[name]) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s is %q, but nobody made it", name, got))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("lost or unknown: %s", strings.Join(wrong, "; "))
}
