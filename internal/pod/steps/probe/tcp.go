package probe

import (
	"context"
	"time"
)

// askTCP opens a connection and closes it.
func askTCP(ctx context.Context, addr string, timeout time.Duration) answer {
	d := dialer()
	d.Timeout = timeout
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return failed("%s", err)
	}
	_ = conn.Close() // an open connection is all that the probe checks
	return answer{result: success}
}
