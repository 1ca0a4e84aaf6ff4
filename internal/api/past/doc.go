// Package past answers requests about the past for the local API: what the node used over the last day, when the
// containers of a pod ran, and how pods started. Packages history, lifeline and timeline own the data.
package past
