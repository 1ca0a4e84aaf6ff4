package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/test/deviceplugin"
)

// devicePlugin starts, changes and stops sample device plugins, which are named by their resource.
func (h *harness) devicePlugin(ts *testscript.TestScript, args []string) {
	d := ts.Value(daemonKey{}).(*daemon)
	action, name, args := args[0], args[1], args[2:]
	if action == "start" {
		p, err := deviceplugin.Start(pluginOptions(ts, name, args))
		ts.Check(err)
		ts.Defer(p.Stop)
		d.plugins[name] = p
		return
	}
	p, ok := d.plugins[name]
	if !ok {
		ts.Fatalf("device-plugin %s: no plugin of %s runs", action, name)
	}
	switch action {
	case "stop":
		p.Stop()
		delete(d.plugins, name)
	case "sick", "heal":
		ts.Check(p.SetHealthy(args[0], action == "heal"))
	case "hang", "answer":
		p.Hang(args[0], action == "hang")
	case "refuse", "accept":
		p.Refuse(args[0], action == "refuse")
	case "await":
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Await(ctx, strings.Join(args, " ")); err != nil {
			fail(ts, "%v", err)
		}
	case "calls":
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(append(p.Calls(), ""), "\n")), 0o644))
	default:
		ts.Fatalf("device-plugin %s: unknown", action)
	}
}

// pluginOptions reads DEVICES [numa=N] [preferred] [prestart] [cdi=KIND] [mount=DIR] [found].
func pluginOptions(ts *testscript.TestScript, name string, args []string) deviceplugin.Options {
	o := deviceplugin.Options{Dir: filepath.Join(rootOf(ts), "device-plugins"), Resource: name}
	var err error
	for i, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case i == 0:
			o.Devices, err = strconv.Atoi(arg)
		case key == "numa":
			o.NUMA, err = strconv.Atoi(value)
		case key == "preferred":
			o.Preferred = true
		case key == "found":
			o.Registry = filepath.Join(rootOf(ts), "plugins_registry")
		case key == "prestart":
			o.PreStart = true
		case key == "cdi":
			o.CDI = value
		case key == "mount":
			o.Mount = ts.MkAbs(value)
		default:
			ts.Fatalf("device-plugin start: unknown option %q", arg)
		}
		ts.Check(err)
	}
	return o
}

// awaitHealth waits until the status of a pod shows this health of a device.
func (h *harness) awaitHealth(ts *testscript.TestScript, args []string) {
	eventually(ts, func() (bool, any) {
		p, err := clientOf(ts).Pod(key(args[0])).Get(context.Background())
		ts.Check(err)
		var seen []corev1.ResourceStatus
		for _, c := range p.Status.ContainerStatuses {
			seen = append(seen, c.AllocatedResourcesStatus...)
		}
		for _, s := range seen {
			for _, r := range s.Resources {
				if string(r.ResourceID) == args[1] && string(r.Health) == args[2] {
					return true, nil
				}
			}
		}
		return false, seen
	})
}

// podResources writes the devices that the PodResources API lists: a line for each list of device IDs and for each
// device of a claim.
func (h *harness) podResources(ts *testscript.TestScript, args []string) {
	conn, err := grpc.NewClient("unix:"+filepath.Join(rootOf(ts), "pod-resources", "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(unixsocket.DialTarget))
	ts.Check(err)
	defer func() { ts.Check(conn.Close()) }()
	client := podresources.NewPodResourcesListerClient(conn)
	list, err := client.List(context.Background(), &podresources.ListPodResourcesRequest{})
	ts.Check(err)
	var lines []string
	add := func(owner string, devices []*podresources.ContainerDevices) {
		for _, d := range devices {
			line := fmt.Sprintf("%s %s %s", owner, d.ResourceName, strings.Join(d.DeviceIds, ","))
			for _, n := range d.GetTopology().GetNodes() {
				line += fmt.Sprintf(" on %d", n.ID)
			}
			lines = append(lines, line+"\n")
		}
	}
	for _, p := range list.PodResources {
		for _, c := range p.Containers {
			add(p.Name+"/"+c.Name, c.Devices)
			for _, claim := range c.DynamicResources {
				for _, r := range claim.ClaimResources {
					lines = append(lines,
						fmt.Sprintf("%s/%s %s/%s %s %s\n", p.Name, c.Name, claim.ClaimNamespace, claim.ClaimName,
							r.PoolName, r.DeviceName))
				}
			}
		}
	}
	allocatable, err := client.GetAllocatableResources(context.Background(),
		&podresources.AllocatableResourcesRequest{})
	ts.Check(err)
	add("allocatable", allocatable.Devices)
	slices.Sort(lines)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(lines, "")), 0o644))
}

// cdiSpec writes a CDI specification to the directory where runtimes look for them. $CDI in it, and from now on, is
// the vendor's domain, which no other script has.
func (h *harness) cdiSpec(ts *testscript.TestScript, args []string) {
	dir, vendor := cdiVendor(ts)
	ts.Check(os.WriteFile(filepath.Join(dir, vendor+".json"),
		[]byte(strings.ReplaceAll(ts.ReadFile(args[0]), "$CDI", vendor)), 0o644))
}

// cdiVendor returns the directory where runtimes look for CDI specifications, and a vendor's domain that no other
// script has. It sets $CDI to the domain. The vendor's specifications are removed when the script ends.
func cdiVendor(ts *testscript.TestScript) (dir, vendor string) {
	vendor = fmt.Sprintf("test%d.example.com", ts.Value(daemonKey{}).(*daemon).place)
	ts.Setenv("CDI", vendor)
	release, err := cdi.use()
	ts.Check(err)
	ts.Defer(func() {
		files, _ := filepath.Glob(filepath.Join(cdi.path, vendor+"*.json"))
		for _, file := range files {
			_ = os.Remove(file)
		}
		release()
	})
	return cdi.path, vendor
}

// cdi is the directory where runtimes look for CDI specifications. All scripts use it, several at a time.
var cdi = sharedDir{path: "/var/run/cdi"}

// sharedDir is a directory of the machine that several scripts use at the same time.
type sharedDir struct {
	path string

	mu    sync.Mutex
	users int
	made  bool // the first of the users made it
}

// use makes the directory if there is none. The last of its users then removes it when it calls release. A script that
// removed the directory while another one was about to write a file would make that script fail.
func (d *sharedDir) use() (release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users == 0 {
		_, err := os.Stat(d.path)
		d.made = errors.Is(err, os.ErrNotExist)
	}
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return nil, err
	}
	d.users++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.users--; d.users == 0 && d.made {
			_ = os.Remove(d.path) // fails if another program has a file there by now
		}
	}, nil
}
