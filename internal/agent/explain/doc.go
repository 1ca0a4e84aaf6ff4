// Package explain answers "berth explain": it runs the rules of admission for the pods of a manifest, and lists the
// answer of each rule. It owns nothing, and admits nothing.
package explain
