package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	_ "github.com/containerd/containerd/v2/core/runtime" // registers the types that "-info" answers with
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/go-runc"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/boot"
	"github.com/berth-run/berth/internal/base/heap"
	"github.com/berth-run/berth/internal/base/logfile"
	"github.com/berth-run/berth/internal/base/sysmon"
	"github.com/berth-run/berth/internal/base/witness"
	"github.com/berth-run/berth/internal/runtime/shim/child"
	"github.com/berth-run/berth/internal/runtime/shim/create"
	"github.com/berth-run/berth/internal/runtime/shim/handover"
	"github.com/berth-run/berth/internal/runtime/shim/outbox"
	"github.com/berth-run/berth/internal/runtime/shim/socket"
	"github.com/berth-run/berth/internal/runtime/shim/terminal"
)

func main() {
	create.Init() // a container's first process does not come back
	// The main thread then runs nothing but this function, which never waits for a file system that a container can
	// choose. So it always ends when the shim is killed, and package tasks knows the shim for a process that has ended.
	runtime.LockOSThread()
	_ = log.SetLevel(log.WarnLevel.String())
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "serve":
		err = serve(os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == terminal.Command:
		terminal.Run()
	default:
		// containerd executes "delete" for containers whose shim is of a version before, and "-info".
		shim.RunShim(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "shim:", err)
		os.Exit(1)
	}
}

// serve runs the shim until SIGTERM, with no effect on containers. The arguments after the flags are IDs of containers.
// They are for handover.Pidfds: somebody who lived when their first processes ended has kept pidfds of them.
func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	tasks := flags.String("tasks", "", "directory of bundles, NAMESPACE/ID")
	exits := flags.String("exits", "", "directory for the exits of deleted containers, NAMESPACE/ID")
	path := flags.String("socket", "", "path of the socket to serve")
	eventSocket := flags.String("events", "", "path of containerd's socket for events")
	ready := flags.Int("ready", 0, "descriptor to close when the shim serves")
	outputs := flags.String("outputs", "", "comma-separated descriptors of unread output, of the program before")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// Not signal.Ignore: containers would inherit it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGHUP)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1) // from now on, since an agent may ask for an upgrade
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	witness.Start()
	lock, err := socket.Lock(*path)
	if err != nil {
		return err
	}
	defer lock.Close()
	// Package runc writes the specifications of commands there, with their environment, and makes consoles.
	scratch, err := socket.Scratch(*path)
	if err == nil {
		err = os.Setenv("XDG_RUNTIME_DIR", scratch)
	}
	if err != nil {
		return fmt.Errorf("make a directory for temporary files: %w", err)
	}
	current, err := boot.ID()
	if err != nil {
		return err
	}
	variable, unset := create.Frugal()
	reaper := child.NewReaper(variable)
	restored := reaper.Begin()
	go reaper.Run()
	runc.Monitor = reaper
	events := outbox.New(*eventSocket)
	go events.Run()
	idle := make(chan struct{})
	containers := newRegistry(sync.OnceFunc(func() { close(idle) }))
	k := &keeper{registry: containers, reaper: reaper, outbox: events, boot: current, exits: *exits,
		limits: filepath.Join(filepath.Dir(*tasks), logfile.LimitsFile), builtin: runcBeside(os.Args[0]),
		relaxes: sysmon.Relax() == nil}
	k.restore(*tasks, handover.Pidfds(flags.Args()))
	restored()
	handover.Close(*outputs) // the containers have opened their output again

	listener, err := socket.Listen(*path)
	if err != nil {
		return err
	}
	memory := heap.New()
	go func() { _ = memory.Run(context.Background()) }() // to the end of the process
	stir := func(ctx context.Context, read ttrpc.Unmarshaler, _ *ttrpc.UnaryServerInfo, do ttrpc.Method) (any, error) {
		memory.Stir()
		return do(ctx, read)
	}
	server, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixSocketRequireSameUser()),
		ttrpc.WithUnaryServerInterceptor(stir))
	if err != nil {
		return err
	}
	taskapi.RegisterTTRPCTaskService(server, &service{containers, k})
	upgrade, err := serveUntilTerm(server, listener, *ready, idle, signals)
	if err != nil || !upgrade {
		listener.CloseAll()
		return err
	}
	containers.close(settling)
	unset()
	return syscall.Exec(os.Args[0], handover.Arguments(os.Args, containers.outputs()), os.Environ())
}

// settling is how long an upgrade waits for containers that are being created.
const settling = 5 * time.Second

// runcBeside is the path of the runc in the directory of a program. The runtime installs both there.
func runcBeside(program string) string { return filepath.Join(filepath.Dir(program), "runc") }

// serveUntilTerm serves until SIGTERM or SIGUSR1, or until there is nothing to serve. It returns upgrade for SIGUSR1:
// this process then becomes the program that is installed now. It stays the parent of the containers, so their exit
// codes are never lost.
func serveUntilTerm(server *ttrpc.Server, listener net.Listener, ready int, idle <-chan struct{},
	signals <-chan os.Signal) (upgrade bool, err error) {
	// The library logs an error for each connection that is closed here, which says nothing.
	connections := logrus.New()
	connections.SetFormatter(log.L.Logger.Formatter)
	connections.SetLevel(log.L.Logger.GetLevel())
	connections.SetOutput(log.L.Logger.Out)
	defer connections.SetOutput(io.Discard)
	ctx := log.WithLogger(context.Background(), logrus.NewEntry(connections))
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	if ready > 0 {
		_ = unix.Close(ready)
	}
	select {
	case err := <-served:
		return false, err
	case <-idle:
		return false, nil
	case got := <-signals:
		return got == syscall.SIGUSR1, nil
	}
}
