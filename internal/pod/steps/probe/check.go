package probe

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

const (
	// attempts is the number of tries at one tick if a probe cannot be executed.
	attempts = 3
	// maxOutput is how many bytes are read of a response or a command's output.
	maxOutput = 10 << 10
	// userAgent is the user agent of the kubelet release whose behaviour Berth follows. Servers recognise probes by it.
	userAgent = "kube-probe/1.36"
)

// result is the result of a probe, in the kubelet's words.
type result string

const (
	success result = "success"
	warning result = "warning" // success, with a warning for the user
	failure result = "failure"
	unknown result = "unknown" // the probe could not be executed
)

// answer is a result with its explanation. An answer with err says nothing about the container.
type answer struct {
	result result
	output string
	err    error
	late   bool // a command has exceeded its timeout
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

// asker executes probes.
type asker struct {
	cri    execer
	http   *http.Transport
	starts *starts // of exec probes
}

// ask executes a probe. It tries again if the probe could not be executed, unless the container has ended meanwhile.
func (k *asker) ask(c check) (a answer) {
	for range attempts {
		a = k.askOnce(c)
		if a.err == nil || c.ctx.Err() != nil || cri.IsNotFound(a.err) {
			break
		}
	}
	return a
}

func (k *asker) askOnce(c check) answer {
	spec, timeout := c.spec, c.settings.timeout
	ports := c.container.Ports
	switch {
	case spec.Exec != nil:
		return k.askExec(c.ctx, c.target.id, pod.ExpandCommand(spec.Exec.Command, c.container.Env), timeout)
	case spec.HTTPGet != nil:
		req, err := newRequest(c.ctx, spec.HTTPGet, ports, c.ip)
		if err != nil {
			return answer{result: unknown, err: err}
		}
		return askHTTP(k.http, req, timeout)
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
