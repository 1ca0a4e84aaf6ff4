package cert

import "sync/atomic"

// failures counts the requests for a new certificate that failed.
type failures struct{ count atomic.Uint64 }

// Failures is how often this process asked for a new certificate in vain.
func (f *failures) Failures() uint64 { return f.count.Load() }
