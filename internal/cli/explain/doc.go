// Package explain has "berth explain": what an agent's admission would say about
// the pods of manifests. It owns how the answer is shown.
package explain
