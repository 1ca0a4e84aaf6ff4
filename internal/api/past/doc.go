// Package past answers requests about the past for the local API: what the node used over the last day, and when the
// containers of a pod ran. Packages history and lifeline own the data.
package past
