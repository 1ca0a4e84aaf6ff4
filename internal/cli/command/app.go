package command

import (
	"os"
	"time"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/config"
)

// App holds the flags that all subcommands share.
type App struct {
	// Root is the flag --root-dir, Socket the flag --socket. Empty means the default.
	Root, Socket string
	// RequestTimeout is the flag --request-timeout, see client.Within.
	RequestTimeout time.Duration
	// Offline answers the commands that work without an agent. nil: every command needs one.
	Offline client.Offline
}

// SocketPath returns the path of the agent's socket.
func (a *App) SocketPath() string {
	if a.Socket != "" {
		return a.Socket
	}
	return config.SocketOf(a.Root)
}

// Client returns a client of the agent that the flags choose.
func (a *App) Client() *client.Client {
	return client.Within(client.New(a.SocketPath()), a.RequestTimeout)
}

// RootClient returns a client that works without an agent too: on the root directory, under its lock. Only root can do
// so, and only without --socket, which chooses an agent.
func (a *App) RootClient() *client.Client {
	if a.Socket != "" || os.Geteuid() != 0 {
		return a.Client()
	}
	return client.Within(client.NewOffline(a.SocketPath(), a.Offline), a.RequestTimeout)
}
