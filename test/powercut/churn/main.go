// Command churn runs in the machine of make powercut. It mounts the disk, starts an agent on it, and checks everything
// that was confirmed in earlier lives of the machine. Then it applies, edits and deletes pods until the power goes. It
// prints each step to the console: see powercut.Line.
//
// In some lives the disk fails meanwhile: it is full for a while, or returns errors.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/test/powercut"
)

// patience is how long the pods of a life may take until they run, on a slow emulated machine.
const patience = 8 * time.Minute

func main() {
	life := life{ledger: powercut.Ledger{}}
	text := flag.String("ledger", "{}", "the powercut.Ledger of the earlier lives, as JSON")
	flag.Uint64Var(&life.seed, "seed", 0, "seed of the campaign")
	flag.Uint64Var(&life.number, "life", 0, "how many lives the machine has had; the first makes the file systems")
	flag.StringVar(&life.fault, "fault", "", "how the disk fails in this life: "+strings.Join(faults(), ", "))
	flag.BoolVar(&life.last, "last", false, "end after the check")
	flag.Parse()
	err := json.Unmarshal([]byte(*text), &life.ledger)
	if err == nil {
		err = life.run(context.Background())
	}
	if err != nil {
		line := powercut.Line{Failed: err.Error()}
		fmt.Println(line)
		fmt.Printf("the end of the agent's log:\n%s\n", life.agent.stacks())
		os.Exit(1)
	}
}

// life is one life of the machine, between two power cuts.
type life struct {
	seed, number uint64
	last         bool
	fault        string
	ledger       powercut.Ledger
	random       *rand.Rand
	disk         disk
	agent        agent
	client       *client.Client
	value        int // the newest value of this life
}

func (l *life) run(ctx context.Context) error {
	l.random = rand.New(rand.NewPCG(l.seed, l.number)) //nolint:gosec // it need not be secret
	if err := l.disk.mount(l.number == 0); err != nil {
		return err
	}
	if err := prepare(); err != nil {
		return err
	}
	damaged, err := powercut.Damaged(root)
	if err != nil {
		return err
	}
	for file, synced := range damaged {
		if synced {
			return fmt.Errorf("state file %s is damaged, although it was synced", file)
		}
	}
	fmt.Println(powercut.Line{Stage: powercut.StageAgent})
	l.client = client.New(filepath.Join(root, "berth.sock"))
	if err := l.agent.start(ctx, l.client); err != nil {
		return err
	}
	if l.number == 0 {
		if err := l.load(ctx); err != nil {
			return err
		}
	}
	if err := l.check(ctx); err != nil {
		return err
	}
	if err := l.named(damaged); err != nil {
		return err
	}
	fmt.Println(powercut.Line{Stage: powercut.StageChecked})
	if l.last {
		if err := errors.Join(l.agent.stop(), l.disk.unmount()); err != nil {
			return err
		}
		fmt.Println(powercut.Line{Stage: powercut.StageDone})
		return nil
	}
	return l.churn(ctx)
}

func (l *life) load(ctx context.Context) error {
	archive, err := os.Open("/berth/bin/workload.tar")
	if err != nil {
		return err
	}
	defer archive.Close()
	if _, err := l.client.Images().Load(ctx, archive); err != nil {
		return fmt.Errorf("load the image: %w", err)
	}
	return nil
}

// named returns an error unless the agent has named every damaged state file, and none is in its place any more.
func (l *life) named(damaged map[string]bool) error {
	log := l.agent.tail(-1)
	for file := range damaged {
		if !strings.Contains(log, filepath.Base(file)) {
			return fmt.Errorf("state file %s was damaged, and the agent's log does not name it", file)
		}
		fmt.Println(powercut.Line{Note: "damaged and named: " + file})
	}
	left, err := powercut.Damaged(root)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("damaged state files are still in their place: %v", left)
	}
	return err
}
