package probe

import (
	"cmp"
	"fmt"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

const (
	// attempts is how often a probe that cannot be carried out is tried at a tick.
	attempts = 3
	// maxOutput is what is read of a response or a command's output, in bytes.
	maxOutput = 10 << 10
	// userAgent is that of a kubelet of the release whose behaviour is followed:
	// servers tell probes by it.
	userAgent = "kube-probe/1.36"
)

// result of a probe, with the kubelet's words.
type result string

const (
	success result = "success"
	warning result = "warning" // success, with a remark for the user
	failure result = "failure"
	unknown result = "unknown" // the probe could not be carried out
)

// answer is a result with what there is to say of it. With err it says nothing of
// the container.
type answer struct {
	result result
	output string
	err    error
}

func (a answer) verdict() plan.Verdict {
	switch {
	case a.err != nil:
		return plan.Unknown
	case a.result == success || a.result == warning:
		return plan.Success
	}
	return plan.Failure
}

func failed(format string, args ...any) answer {
	return answer{result: failure, output: fmt.Sprintf(format, args...)}
}

// ask carries out a probe, again when it could not be, but not in a container
// that is no more: it ended while it was asked.
func (p *Probes) ask(c check) (a answer) {
	for range attempts {
		a = p.askOnce(c)
		if a.err == nil || c.ctx.Err() != nil || cri.IsNotFound(a.err) {
			break
		}
	}
	return a
}

func (p *Probes) askOnce(c check) answer {
	spec, timeout := c.spec, c.settings.timeout
	ports := c.container.Ports
	switch {
	case spec.Exec != nil:
		return p.askExec(c.ctx, c.target.id, p.opts.Expand(spec.Exec.Command, c.container.Env), timeout)
	case spec.HTTPGet != nil:
		req, err := newRequest(c.ctx, spec.HTTPGet, ports, c.ip)
		if err != nil {
			return answer{result: unknown, err: err}
		}
		return askHTTP(p.http, req, timeout)
	case spec.TCPSocket != nil:
		port, err := portOf(spec.TCPSocket.Port, ports)
		if err != nil {
			return answer{result: unknown, err: err}
		}
		return askTCP(c.ctx, address(cmp.Or(spec.TCPSocket.Host, c.ip), port), timeout)
	case spec.GRPC != nil:
		service := ""
		if spec.GRPC.Service != nil {
			service = *spec.GRPC.Service
		}
		return askGRPC(c.ctx, address(c.ip, int(spec.GRPC.Port)), service, timeout)
	}
	return answer{result: unknown,
		err: fmt.Errorf("missing probe handler for %s:%s", pod.FullName(c.pod), c.container.Name)}
}
