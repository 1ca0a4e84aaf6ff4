package agent

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-run/berth/internal/pod/steps/image"
	"github.com/berth-run/berth/internal/pod/steps/image/credential"
	"github.com/berth-run/berth/internal/pod/steps/image/garbage"
	"github.com/berth-run/berth/internal/pod/steps/image/record"
	"github.com/berth-run/berth/internal/record/event"
)

// buildImages makes the parts that pull and remove images.
func buildImages(a *Agent) error {
	c := a.Config
	var providers []credential.Provider
	if c.Images.Providers.Config != "" {
		var err error
		if providers, err = credential.Load(c.Images.Providers.Config, c.Images.Providers.BinDir); err != nil {
			return err
		}
		if c.Disabled.TokenPlugins {
			if err := credential.WithoutTokens(providers); err != nil {
				return err
			}
		}
	}
	records := record.New(record.Options{
		Dir:    filepath.Join(c.RootDir, "image_manager"),
		Policy: record.Policy{Verification: c.Images.Verification, Allowlist: c.Images.Allowlist}, Log: a.Log,
	})
	a.housekeeping.images = garbage.New(garbage.Options{
		Images: a.machine.engine.Client.Images, Containers: a.machine.engine.Client.Runtime,
		Pods: a.tables.fleet, Sandboxes: a.machine.engine.SandboxImages, Records: records,
		Dir:    c.RootDir,
		Synced: []<-chan struct{}{a.demand.sources.Synced(), a.tables.observed.Synced()},
		Thresholds: garbage.Thresholds{
			High: c.Images.HighThreshold, Low: c.Images.LowThreshold, MinAge: c.Images.MinimumAge,
			MaxAge: c.Images.MaximumAge, Imported: c.Images.Loaded,
		},
		Events: a.records.events, Node: event.NodeRef(c.NodeName),
		Now: time.Now, Log: a.Log,
	})
	if err := errors.Join(records.Load(), a.housekeeping.images.Load()); err != nil {
		return err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // a service without HOME
	}
	keys := credential.New(credential.Options{RootDir: c.RootDir, HomeDir: home, Providers: providers,
		Environ: os.Environ(), Accounts: a.demand.access.Accounts, Now: time.Now})
	if err := errors.Join(keys.Register(a.metrics), records.Register(a.metrics)); err != nil {
		return err
	}
	o := image.Options{
		Secrets: a.demand.access.Objects,
		Client:  a.machine.engine.Client.Images, Events: a.records.events, Parallel: c.Runtime.ParallelPulls,
		Sandboxes: a.steps.sandboxes,
		Garbage:   a.housekeeping.images,
		Keys:      keys,
		Now:       time.Now, Log: a.Log,
	}
	if !a.Config.Disabled.ImageSecrets {
		o.Records = records
	}
	if progress := a.machine.engine.Progress(); progress != nil {
		o.Progress = progress
	}
	a.steps.images = image.New(o)
	return nil
}
