// Package explain answers "berth explain": what admission would say about the pods of a manifest, rule by rule. It
// owns nothing, and admits nothing.
package explain
