package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/client"
	"github.com/berth-run/berth/internal/pod"
)

type forwardFlags struct {
	scope
	addresses []string
}

func forwardCommand(a *app) *cobra.Command {
	var f forwardFlags
	cmd := &cobra.Command{
		Use:   "port-forward POD [LOCAL:]PORT...",
		Short: "Reach ports of a pod from this machine",
		Long: `Listen on local ports and pass each connection to a port of the pod, until interrupted. PORT is a number or
the name of a container's port; LOCAL is the same number by default, and any free one when it is left empty (:PORT)
or 0. The pod's process may listen on the pod's loopback address only.`,
		Example: "  berth port-forward web 8080:http\n  berth port-forward web :80 --address 0.0.0.0",
		Args:    usage(cobra.MinimumNArgs(2)),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.forward(cmd, &f, args[0], args[1:]) },
	}
	f.add(cmd)
	cmd.Flags().StringSliceVar(&f.addresses, "address", []string{"localhost"}, "IP `addresses` to listen on; localhost is 127.0.0.1 and ::1")
	cmd.ValidArgsFunction = a.completePod(&f.scope)
	return cmd
}

func (a *app) forward(cmd *cobra.Command, f *forwardFlags, arg string, specs []string) error {
	key, err := f.pod(arg)
	if err != nil {
		return err
	}
	c := a.client()
	p, err := c.Pod(cmd.Context(), key)
	if err != nil {
		return err
	}
	ports := make([]string, len(specs))
	for i, spec := range specs {
		if ports[i], err = forwardedPort(p, spec); err != nil {
			return client.Next(err, "write [LOCAL:]PORT, such as 8080:80")
		}
	}
	return c.PortForward(cmd.Context(), key, client.Forward{Addresses: f.addresses, Ports: ports, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()})
}

// forwardedPort is LOCAL:REMOTE, both numbers, of what a user wrote.
func forwardedPort(p *corev1.Pod, spec string) (string, error) {
	local, remote, two := strings.Cut(spec, ":")
	if !two {
		local, remote = "", spec
	}
	number, err := portNumber(p, remote)
	switch {
	case err != nil:
		return "", fmt.Errorf("port %q: %w", spec, err)
	case !two:
		local = strconv.Itoa(number)
	case local == "":
		local = "0"
	}
	if n, err := strconv.ParseUint(local, 10, 16); err != nil {
		return "", fmt.Errorf("port %q: the local port is no number up to 65535", spec)
	} else if n == 0 && !two {
		return "", fmt.Errorf("port %q: it is 0", spec)
	}
	return local + ":" + strconv.Itoa(number), nil
}

// portNumber resolves the name of a port as probes do.
func portNumber(p *corev1.Pod, text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > 65535 {
			return 0, errors.New("it is not between 1 and 65535")
		}
		return n, nil
	}
	var names []string
	for _, c := range pod.Containers(p) {
		for _, port := range c.Ports {
			if port.Name == text {
				return int(port.ContainerPort), nil
			}
			if port.Name != "" {
				names = append(names, port.Name)
			}
		}
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("pod %s names no ports", pod.FullName(p))
	}
	return 0, fmt.Errorf("pod %s has no port of that name; it has %s", pod.FullName(p), strings.Join(names, ", "))
}
