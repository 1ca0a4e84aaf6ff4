package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/client"
)

func imageCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "image",
		Short:   "Load and list images",
		Example: "  berth image load web.tar",
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	ls := getImagesCommand(a, "ls")
	ls.Aliases = []string{"list"}
	cmd.AddCommand(imageLoadCommand(a), ls)
	return cmd
}

func imageLoadCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "load FILE|-",
		Short:   "Load an image archive: an OCI layout or what docker save writes, as a tar file",
		Example: "  berth image load web.tar",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return loadImage(cmd.Context(), cmd, a.client(), args[0])
		},
	}
}

// loadImage sends an archive to the agent and says what it brought.
func loadImage(ctx context.Context, cmd *cobra.Command, c *client.Client, name string) error {
	from, size := cmd.InOrStdin(), int64(0)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return client.Next(fmt.Errorf("load image: %w", err), "give the path of a tar file, or - for standard input")
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil {
			size = st.Size()
		}
		from = f
	}
	bar := newMeter(cmd.ErrOrStderr(), from, size)
	images, err := c.LoadImages(ctx, bar)
	bar.done()
	if err != nil {
		return err
	}
	for _, i := range images {
		names := i.Tags
		if len(names) == 0 {
			names = []string{i.ID}
		}
		for _, n := range names {
			fmt.Fprintf(cmd.OutOrStdout(), "loaded %s\n", n)
		}
	}
	return nil
}

// meter shows on a terminal how much was read.
type meter struct {
	io.Reader
	w           io.Writer // nil: silent
	read, total int64
	shown       time.Time
}

func newMeter(stderr io.Writer, from io.Reader, total int64) *meter {
	m := &meter{Reader: from, total: total, shown: time.Now()}
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		m.w = stderr
	}
	return m
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.read += int64(n)
	if m.w != nil && time.Since(m.shown) > 200*time.Millisecond {
		m.shown = time.Now()
		of := ""
		if m.total > 0 {
			of = " of " + printer.Bytes(uint64(m.total))
		}
		fmt.Fprintf(m.w, "\rloading %s%s \033[K", printer.Bytes(uint64(m.read)), of)
	}
	return n, err
}

// done wipes the line.
func (m *meter) done() {
	if m.w != nil {
		fmt.Fprint(m.w, "\r\033[K")
	}
}
