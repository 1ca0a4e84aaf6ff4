package command

import (
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/config"
)

// App holds the flags that all subcommands share.
type App struct {
	// Root is the flag --root-dir, Socket the flag --socket. Empty means the default.
	Root, Socket string
}

// SocketPath returns the path of the agent's socket.
func (a *App) SocketPath() string {
	if a.Socket != "" {
		return a.Socket
	}
	return config.SocketOf(a.Root)
}

// Client returns a client of the agent that the flags choose.
func (a *App) Client() *client.Client { return client.New(a.SocketPath()) }
