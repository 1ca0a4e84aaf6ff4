package cert

import "sync/atomic"

// failures counts the failed requests for a new certificate.
type failures struct{ count atomic.Uint64 }

// Failures returns how many requests of this process for a new certificate have failed.
func (f *failures) Failures() uint64 { return f.count.Load() }
