// Package explain implements "berth explain": it shows whether an agent would admit the pods of manifests.
// It owns how the answer is printed.
package explain
