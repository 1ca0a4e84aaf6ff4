// Command leftovers finds things that the tests have left on the machine. "leftovers record FILE" records the machine
// before the tests. "leftovers check FILE" names everything that is new since then, and exits with 1 if it finds
// anything.
//
// It looks at packet filter rules, network devices, mounts (network namespaces are mounts too), cgroups and processes
// of the project, records of CNI attachments, and files in /run.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// patience is how long check waits for processes that are ending.
const patience = 10 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "leftovers:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: leftovers record|check FILE")
	}
	switch args[0] {
	case "record":
		now, err := look()
		if err != nil {
			return err
		}
		text, err := json.MarshalIndent(now, "", " ")
		if err != nil {
			return err
		}
		return os.WriteFile(args[1], text, 0o600)
	case "check":
		text, err := os.ReadFile(args[1])
		if err != nil {
			return fmt.Errorf("%w; next: run make before, ahead of the tests", err)
		}
		var before findings
		if err := json.Unmarshal(text, &before); err != nil {
			return fmt.Errorf("read %s: %w", args[1], err)
		}
		return check(before)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// check looks until nothing is left or patience is over.
func check(before findings) error {
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		now, err := look()
		if err != nil {
			return err
		}
		left := since(before, now)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(end) {
			for _, thing := range left {
				fmt.Println("left:", thing)
			}
			return fmt.Errorf("the tests have left %d things on the machine", len(left))
		}
	}
}
