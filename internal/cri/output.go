package cri

import (
	"context"
	"strconv"

	"google.golang.org/grpc/metadata"
)

// outputKey is the metadata of an ExecSync call that says how many bytes of each output the caller reads.
const outputKey = "berth-output"

// LimitOutput returns a context for an ExecSync call whose caller reads at most this many bytes of each output. The
// embedded runtime drops the rest. Other runtimes ignore the limit.
func LimitOutput(ctx context.Context, bytes int) context.Context {
	return metadata.AppendToOutgoingContext(ctx, outputKey, strconv.Itoa(bytes))
}

// OutputLimit returns the limit that the caller of an ExecSync call has set, in the context of the runtime's method.
func OutputLimit(ctx context.Context) (bytes int, limited bool) {
	values := metadata.ValueFromIncomingContext(ctx, outputKey)
	if len(values) == 0 {
		return 0, false
	}
	bytes, err := strconv.Atoi(values[0])
	return bytes, err == nil && bytes >= 0
}
