package setup

import (
	"context"
	_ "embed" // the files
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/config/recall"
)

//go:embed config.yaml
var configuration string

//go:embed berth.service
var unit string

const (
	unitName     = "berth.service"
	unitPath     = "/etc/systemd/system/" + unitName
	manifestsDir = "/etc/berth/manifests" // staticPodPath in the configuration
	// program is the path in the unit as it is in this package.
	program = "/usr/local/bin/berth"
)

// Command returns "berth init".
func Command(a *command.App) *cobra.Command {
	var (
		s    setup
		show string
	)
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a commented configuration and enable the systemd unit of the agent",
		Long: `Write /etc/berth/config.yaml, make the manifest directory /etc/berth/manifests, write the systemd unit
and enable it, so that the agent starts at each boot. The unit runs this program at its present path.

The command overwrites nothing, so it may be repeated: it keeps a configuration that exists, and
refuses to replace a unit that differs. Without systemd it writes no unit.`,
		Example: "  berth init --now",
		Args:    command.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.root = a.Root
			switch show {
			case "config":
				_, err := fmt.Fprint(cmd.OutOrStdout(), configuration)
				return err
			case "unit":
				text, err := s.unit()
				if err == nil {
					_, err = fmt.Fprint(cmd.OutOrStdout(), text)
				}
				return err
			case "":
				return s.run(cmd)
			}
			return client.Next(fmt.Errorf("print %q: there is no such file", show), "use config or unit")
		},
	}
	cmd.Flags().StringVar(&s.prefix, "prefix", "",
		"write below this `directory`, which becomes the root of another machine; the unit runs "+program)
	cmd.Flags().BoolVar(&s.now, "now", false, "also start the agent now")
	cmd.Flags().StringVar(&show, "print", "", "print a `file` and write nothing: config or unit")
	cmd.MarkFlagsMutuallyExclusive("prefix", "now")
	cmd.MarkFlagsMutuallyExclusive("print", "now")
	command.Mark(cmd.MarkFlagDirname("prefix"))
	command.Mark(cmd.RegisterFlagCompletionFunc("print",
		cobra.FixedCompletions([]string{"config", "unit"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// setup holds the flags.
type setup struct {
	prefix, root string
	now          bool
}

// path returns where a file of the machine is written.
func (s setup) path(name string) string { return filepath.Join("/", s.prefix, name) }

func (s setup) run(cmd *cobra.Command) error {
	if s.prefix == "" && os.Geteuid() != 0 {
		return client.Next(errors.New("this command needs root"), "run this command as root, or give --prefix")
	}
	out := cmd.OutOrStdout()
	text, err := s.unit()
	if err != nil {
		return err
	}
	if s.prefix != "" {
		if s.prefix, err = filepath.Abs(s.prefix); err != nil {
			return client.Next(fmt.Errorf("find directory of --prefix: %w", err), "give --prefix an absolute path")
		}
	}
	_, err = os.Stat("/run/systemd/system") // sd_booted(3)
	systemd := s.prefix != "" || err == nil
	if systemd {
		if err := differs(s.path(unitPath), text); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(s.path(manifestsDir), 0o755); err != nil {
		return client.Next(fmt.Errorf("make manifest directory: %w", err), writable)
	}
	for _, f := range []struct {
		name, text string
		wanted     bool
	}{{recall.SystemFile, configuration, true}, {unitPath, text, systemd}} {
		if !f.wanted {
			continue
		}
		written, err := create(s.path(f.name), f.text)
		if err != nil {
			return err
		}
		what := "kept"
		if written {
			what = "created"
		}
		fmt.Fprintf(out, "%s %s\n", what, s.path(f.name))
	}
	if !systemd {
		fmt.Fprintf(out, "systemd does not run here, so there is no unit\nnext: start the agent with \"berth agent "+
			"--config %s\"\n", recall.SystemFile)
		return nil
	}
	if err := s.enable(cmd.Context()); err != nil {
		return err
	}
	fmt.Fprintln(out, "enabled", unitName)
	if !s.now && s.prefix == "" {
		fmt.Fprintln(out,
			`next: check the machine with "berth doctor", and start the agent with "systemctl start berth"`)
	}
	return nil
}

// unit returns the text of the unit that runs this program.
func (s setup) unit() (string, error) {
	path := program
	if s.prefix == "" {
		var err error
		if path, err = os.Executable(); err != nil {
			return "", client.Next(fmt.Errorf("find this program: %w", err), "run it by its path")
		}
	}
	if s.root != "" {
		root, err := filepath.Abs(s.root)
		if err != nil {
			return "", client.Next(fmt.Errorf("find root directory: %w", err), "give --root-dir an absolute path")
		}
		return unitFor(path, root)
	}
	return unitFor(path, "")
}

// unitFor returns the unit that runs the program at path with a root directory. "" is the default one.
func unitFor(path, root string) (string, error) {
	args := " agent --config " + recall.SystemFile
	for _, p := range []string{path, root} {
		// systemd.service(5) and systemd.unit(5) give these characters a meaning in command lines.
		if strings.ContainsAny(p, " \t\n\"'\\%$;") {
			return "", client.Next(fmt.Errorf("write unit: the path %q has a character that systemd interprets", p),
				"install the program as "+program+", or choose another --root-dir")
		}
	}
	command := path + args
	if root != "" {
		command += " --root-dir " + root
	}
	return strings.Replace(unit, program+args, command, 1), nil
}

// differs returns an error if a file exists with another text.
func differs(path, text string) error {
	there, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && string(there) == text:
		return nil
	case err != nil:
		return client.Next(fmt.Errorf("write unit: %w", err), writable)
	}
	return client.Next(fmt.Errorf("write unit: %s exists and differs from the one of this version", path),
		`compare it with "berth init --print unit"; remove it to replace it, or keep your changes in a drop-in `+
			`("systemctl edit berth")`)
}

// writable is the next step after a file or directory that cannot be written.
const writable = `make that path writable, or give --prefix, and run "berth init" again`

// create writes a file unless it exists. It returns whether it has written it.
func create(path, text string) (written bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, client.Next(fmt.Errorf("make directory: %w", err), writable)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, client.Next(fmt.Errorf("write file: %w", err), writable)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil { // half a file would be kept next time
		return false, errors.Join(client.Next(fmt.Errorf("write %s: %w", path, err), writable), os.Remove(path))
	}
	return true, nil
}

// enable makes systemd start the agent at each boot.
func (s setup) enable(ctx context.Context) error {
	for _, args := range s.commands() {
		if out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput(); err != nil {
			if text := strings.TrimSpace(string(out)); text != "" {
				err = fmt.Errorf("%s (%w)", text, err)
			}
			return client.Next(fmt.Errorf("enable the unit: systemctl %s: %w", strings.Join(args, " "), err),
				`correct that, and run "berth init" again`)
		}
	}
	return nil
}

// commands returns the arguments of systemctl, in their order.
func (s setup) commands() [][]string {
	switch {
	case s.prefix != "":
		return [][]string{{"--root=" + s.prefix, "enable", unitName}}
	case s.now:
		return [][]string{{"daemon-reload"}, {"enable", "--now", unitName}}
	}
	return [][]string{{"daemon-reload"}, {"enable", unitName}}
}
